/* System and CUDA shared memory: register, unregister, status. */
#include <arpa/inet.h>
#include <string.h>
#include <sys/socket.h>

#include "grpc_service.pb-c.h"
#include "serve/codec/base64.h"
#include "serve/endpoint.h"
#include "serve/internal.h"

typedef Inference__SystemSharedMemoryStatusResponse__RegionsEntry system_entry;
typedef Inference__SystemSharedMemoryStatusResponse__RegionStatus system_region;
typedef Inference__CudaSharedMemoryStatusResponse__RegionsEntry cuda_entry;
typedef Inference__CudaSharedMemoryStatusResponse__RegionStatus cuda_region;

enum { HANDLE_MAX = 64 };

/* ---- who asks ---- */

static bool is_loopback(const struct sockaddr_storage *address)
{
    struct sockaddr_in6 six;
    struct sockaddr_in four;

    if (address->ss_family == AF_INET) {
        memcpy(&four, address, sizeof(four));
        return ntohl(four.sin_addr.s_addr) >> 24 == 127;
    }
    if (address->ss_family != AF_INET6)
        return false;
    memcpy(&six, address, sizeof(six));
    return IN6_IS_ADDR_LOOPBACK(&six.sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&six.sin6_addr) && six.sin6_addr.s6_addr[12] == 127);
}

static struct region_peer peer_of(const struct connection *connection)
{
    struct region_peer peer = {.is_local = connection->is_unix};
    struct ucred credentials;
    socklen_t size = sizeof(credentials);
    struct sockaddr_storage address;
    socklen_t address_size = sizeof(address);

    if (!connection->is_unix) {
        peer.is_local =
            getpeername(connection->fd, (struct sockaddr *)&address, &address_size) == 0 &&
            is_loopback(&address);
        return peer;
    }
    if (getsockopt(connection->fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
        return peer;
    peer.is_known = true;
    peer.pid = credentials.pid;
    peer.uid = credentials.uid;
    peer.gid = credentials.gid;
    return peer;
}

static struct region_name name_of(const char *text)
{
    return (struct region_name){text, strlen(text)};
}

/* ---- register, unregister ---- */

static bool register_region(struct call *call, enum region_kind kind, struct region_order *order)
{
    struct error err = {0};

    order->peer = peer_of(call->connection);
    if (regions_register(call->server->regions, kind, order, &err) == STATUS_OK)
        return true;
    call_fail_with(call, &err);
    return false;
}

void run_system_shared_memory_register(struct call *call)
{
    const Inference__SystemSharedMemoryRegisterRequest *request = (const void *)call->message;
    Inference__SystemSharedMemoryRegisterResponse reply =
        INFERENCE__SYSTEM_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    struct region_order order = {.name = name_of(request->name),
                                 .key = name_of(request->key),
                                 .offset = request->offset,
                                 .bytes = request->byte_size};

    if (register_region(call, REGION_SYSTEM, &order))
        call_reply_message(call, &reply.base);
}

/* Over REST the handle is base64. */
static bool read_handle(struct call *call, const ProtobufCBinaryData *raw,
                        uint8_t handle[HANDLE_MAX], struct region_order *order)
{
    order->handle = raw->data;
    order->handle_bytes = raw->len;
    if (!call->is_rest)
        return true;
    order->handle = handle;
    if (base64_decode((const char *)raw->data, raw->len, handle, HANDLE_MAX, &order->handle_bytes))
        return true;
    call_fail(call, STATUS_INVALID,
              "failed to register shared memory region '%.*s': raw_handle.b64 is no base64 of %d "
              "bytes",
              (int)order->name.size, order->name.data, HANDLE_MAX);
    return false;
}

void run_cuda_shared_memory_register(struct call *call)
{
    const Inference__CudaSharedMemoryRegisterRequest *request = (const void *)call->message;
    Inference__CudaSharedMemoryRegisterResponse reply =
        INFERENCE__CUDA_SHARED_MEMORY_REGISTER_RESPONSE__INIT;
    struct region_order order = {.name = name_of(request->name),
                                 .device_id = request->device_id,
                                 .bytes = request->byte_size};
    uint8_t handle[HANDLE_MAX];

    if (read_handle(call, &request->raw_handle, handle, &order) &&
        register_region(call, REGION_CUDA, &order))
        call_reply_message(call, &reply.base);
}

void run_system_shared_memory_unregister(struct call *call)
{
    const Inference__SystemSharedMemoryUnregisterRequest *request = (const void *)call->message;
    Inference__SystemSharedMemoryUnregisterResponse reply =
        INFERENCE__SYSTEM_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    regions_unregister(call->server->regions, REGION_SYSTEM, name_of(request->name));
    call_reply_message(call, &reply.base);
}

void run_cuda_shared_memory_unregister(struct call *call)
{
    const Inference__CudaSharedMemoryUnregisterRequest *request = (const void *)call->message;
    Inference__CudaSharedMemoryUnregisterResponse reply =
        INFERENCE__CUDA_SHARED_MEMORY_UNREGISTER_RESPONSE__INIT;

    regions_unregister(call->server->regions, REGION_CUDA, name_of(request->name));
    call_reply_message(call, &reply.base);
}

/* ---- status ---- */

struct listing {
    struct call *call;
    struct region_info *info;
    size_t count, room;
};

static void add_region(void *arg, const struct region_info *info)
{
    struct listing *listing = arg;

    if (listing->count < listing->room)
        listing->info[listing->count++] = *info;
}

/* The regions of a kind, or the one that is named; false: answered with the reason. */
static bool list_regions(struct call *call, enum region_kind kind, const char *name,
                         struct listing *out_listing)
{
    struct regions *regions = call->server->regions;
    struct listing listing = {.call = call, .room = 1};
    struct error err = {0};
    struct regions_use use;

    regions_read_use(regions, &use);
    if (name[0] == '\0')
        listing.room = use.count[kind];
    listing.info = arena_take_array(&call->request.arena, listing.room + 1, sizeof(*listing.info));
    if (listing.info == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return false;
    }
    if (name[0] == '\0') {
        regions_for_each(regions, kind, add_region, &listing);
    } else if (regions_find(regions, kind, name_of(name), &listing.info[listing.count++], &err) !=
               STATUS_OK) {
        call_fail_with(call, &err);
        return false;
    }
    *out_listing = listing;
    return true;
}

/* `count` rows of `size` bytes and pointers to them; NULL: answered. */
static void *make_rows(struct call *call, size_t count, size_t size, void ***out_list)
{
    char *rows = arena_take_array(&call->request.arena, count + 1, size);
    void **list = arena_take_array(&call->request.arena, count + 1, sizeof(*list));

    if (rows == NULL || list == NULL) {
        call_fail(call, STATUS_NO_MEMORY, "out of memory");
        return NULL;
    }
    for (size_t i = 0; i < count; i++)
        list[i] = rows + i * size;
    *out_list = list;
    return rows;
}

static char *text_of(const char *text)
{
    return (char *)(uintptr_t)text; /* protobuf-c's messages do not say const */
}

void run_system_shared_memory_status(struct call *call)
{
    const Inference__SystemSharedMemoryStatusRequest *request = (const void *)call->message;
    Inference__SystemSharedMemoryStatusResponse reply =
        INFERENCE__SYSTEM_SHARED_MEMORY_STATUS_RESPONSE__INIT;
    struct row {
        system_entry entry;
        system_region region;
    } * rows;
    struct listing listing;
    void **list;

    if (!list_regions(call, REGION_SYSTEM, request->name, &listing))
        return;
    rows = make_rows(call, listing.count, sizeof(*rows), &list);
    for (size_t i = 0; rows != NULL && i < listing.count; i++) {
        inference__system_shared_memory_status_response__regions_entry__init(&rows[i].entry);
        inference__system_shared_memory_status_response__region_status__init(&rows[i].region);
        rows[i].entry.key = rows[i].region.name = text_of(listing.info[i].name.data);
        rows[i].entry.value = &rows[i].region;
        rows[i].region.key = text_of(listing.info[i].key);
        rows[i].region.offset = listing.info[i].offset;
        rows[i].region.byte_size = listing.info[i].bytes;
    }
    if (rows == NULL)
        return;
    reply.n_regions = listing.count;
    reply.regions = (system_entry **)list;
    call_reply_message(call, &reply.base);
}

void run_cuda_shared_memory_status(struct call *call)
{
    const Inference__CudaSharedMemoryStatusRequest *request = (const void *)call->message;
    Inference__CudaSharedMemoryStatusResponse reply =
        INFERENCE__CUDA_SHARED_MEMORY_STATUS_RESPONSE__INIT;
    struct row {
        cuda_entry entry;
        cuda_region region;
    } * rows;
    struct listing listing;
    void **list;

    if (!list_regions(call, REGION_CUDA, request->name, &listing))
        return;
    rows = make_rows(call, listing.count, sizeof(*rows), &list);
    for (size_t i = 0; rows != NULL && i < listing.count; i++) {
        inference__cuda_shared_memory_status_response__regions_entry__init(&rows[i].entry);
        inference__cuda_shared_memory_status_response__region_status__init(&rows[i].region);
        rows[i].entry.key = rows[i].region.name = text_of(listing.info[i].name.data);
        rows[i].entry.value = &rows[i].region;
        rows[i].region.device_id = (uint64_t)listing.info[i].device_id;
        rows[i].region.byte_size = listing.info[i].bytes;
    }
    if (rows == NULL)
        return;
    reply.n_regions = listing.count;
    reply.regions = (cuda_entry **)list;
    call_reply_message(call, &reply.base);
}
