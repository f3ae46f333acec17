/* Intrusive doubly linked list: the link lives in the object, the list owns nothing. */
#ifndef BASE_LIST_H
#define BASE_LIST_H

#include <stdbool.h>
#include <stddef.h>

struct list {
    struct list *next;
    struct list *prev;
};

#define CONTAINER_OF(pointer, type, member) ((type *)((char *)(pointer)-offsetof(type, member)))

static inline void list_init(struct list *list)
{
    list->next = list->prev = list;
}

static inline bool list_is_empty(const struct list *list)
{
    return list->next == list;
}

static inline void list_insert_before(struct list *position, struct list *link)
{
    link->prev = position->prev;
    link->next = position;
    position->prev->next = link;
    position->prev = link;
}

static inline void list_append(struct list *list, struct list *link)
{
    list_insert_before(list, link);
}

static inline void list_prepend(struct list *list, struct list *link)
{
    list_insert_before(list->next, link);
}

/* Leaves `link` alone in a list of its own, so that removing twice is harmless. */
static inline void list_remove(struct list *link)
{
    link->prev->next = link->next;
    link->next->prev = link->prev;
    list_init(link);
}

static inline struct list *list_first(const struct list *list)
{
    return list_is_empty(list) ? NULL : list->next;
}

#define LIST_FIRST(head, type, member)                                                             \
    (list_is_empty(head) ? NULL : CONTAINER_OF((head)->next, type, member))

/* `item` may be removed inside the loop. */
#define LIST_FOR_EACH(item, head, type, member)                                                    \
    for (struct list *link_ = (head)->next, *next_ = link_->next;                                  \
         link_ != (head) && (item = CONTAINER_OF(link_, type, member), true);                      \
         link_ = next_, next_ = next_->next)

#endif
