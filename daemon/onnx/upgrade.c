#include "onnx/internal.h"
enum status upgrade_form(struct form *form, struct error *err)
{
    (void)form;
    (void)err;
    return STATUS_OK;
}
