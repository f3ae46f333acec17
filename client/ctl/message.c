/* Calls: protobuf messages there and back; the admin service answers JSON documents. */
#include <stdlib.h>
#include <string.h>

#include "ctl.h"
#include "proto/admin.pb-c.h"

int ctl_call(struct ctl *ctl, const char *method, const ProtobufCMessage *request,
             const ProtobufCMessageDescriptor *reply_type, ProtobufCMessage **out_reply)
{
    struct sluice_error error;
    char path[256];
    size_t bytes = protobuf_c_message_get_packed_size(request), reply_bytes;
    uint8_t *packed = malloc(bytes + 1);
    void *reply = NULL;
    enum sluice_status status;

    if (packed == NULL)
        abort();
    (void)protobuf_c_message_pack(request, packed);
    (void)snprintf(path, sizeof(path), "/%s", method);
    status = sluice_call(ctl->client, path, packed, bytes, 0, &reply, &reply_bytes, &error);
    free(packed);
    if (status != SLUICE_OK)
        return ctl_fail(&error);
    *out_reply = protobuf_c_message_unpack(reply_type, NULL, reply_bytes, reply);
    free(reply);
    if (*out_reply == NULL) {
        (void)fprintf(stderr, "sluicectl: the server's reply to %s is not a %s\n", method,
                      reply_type->name);
        return EXIT_REFUSED;
    }
    return EXIT_DONE;
}

int ctl_admin(struct ctl *ctl, const char *verb, const Sluice__V1__AdminRequest *request,
              json_t **out_answer)
{
    char method[64];
    Sluice__V1__AdminReply *reply;
    json_error_t problem;
    json_t *answer;
    int exit_status;

    (void)snprintf(method, sizeof(method), "sluice.v1.Admin/%s", verb);
    exit_status = ctl_call(ctl, method, &request->base, &sluice__v1__admin_reply__descriptor,
                           (ProtobufCMessage **)&reply);
    if (exit_status != EXIT_DONE)
        return exit_status;
    answer = json_loads(reply->json, JSON_ALLOW_NUL, &problem);
    if (answer == NULL)
        (void)fprintf(stderr, "sluicectl: the server's answer to %s is no JSON: %s\n", verb,
                      problem.text);
    protobuf_c_message_free_unpacked(&reply->base, NULL);
    *out_answer = answer;
    return answer != NULL ? EXIT_DONE : EXIT_REFUSED;
}

bool ctl_printed_json(const struct ctl *ctl, const json_t *answer)
{
    if (ctl->as_json) {
        (void)json_dumpf(answer, stdout, JSON_INDENT(2) | JSON_REAL_PRECISION(9));
        (void)putchar('\n');
    }
    return ctl->as_json;
}
