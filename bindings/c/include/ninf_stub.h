/* What programs of Ninf include besides ninf.h: sets of sessions. */
#ifndef FARCALL_NINF_STUB_H
#define FARCALL_NINF_STUB_H

#include "ninf_error.h"

#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A set of sessions, in the order in which they were added. */
typedef struct _id_set_struct {
  int *content;
  int length;
} id_set;

/* An empty set, which free_id_set() frees; NULL if there is no memory. */
id_set *new_id_set(void);
void free_id_set(id_set *set);
void clear_id_set(id_set *set);

/* Adds a session, or removes the one at an index. They return TRUE, or FALSE if that cannot be. */
int id_set_add(id_set *set, int session);
int id_set_rm(id_set *set, int index);

/* The session at an index, or -1; all sessions; their number; prints them. */
int id_set_get_id(id_set *set, int index);
int *id_set_content(id_set *set);
int id_set_length(id_set *set);
void id_set_dump(id_set *set, FILE *file);

/* Wait for all sessions of a set, or for one, which goes to `*session`. They return those that have
 * ended, as a new set, and take them out of the given one. */
id_set *Ninf_wait_and_set(id_set *set);
id_set *Ninf_wait_or_set(id_set *set, int *session);

#ifdef __cplusplus
}
#endif

#endif
