/* The names of Ninf that need only other names of Ninf: sets of sessions, executables and groups.
 * `variadic.c` makes the calls of executables and groups. */
#define _DEFAULT_SOURCE
#include "internal.h"

#include "ninf_stub.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#undef Ninf_wait_or

int ninf_debug_flag, ninf_error_code;

void farcall_internal_ninf_failed(farcall_status status, const char *message) {
  int code;

  switch (status) {
  case FARCALL_UNKNOWN_FUNCTION:
    code = NINF_ERROR_CANTFINDSTUB;
    break;
  case FARCALL_CONNECTION:
    code = NINF_ERROR_CANTCONNECTSERVER;
    break;
  case FARCALL_TIMEOUT:
    code = NINF_ERROR_DATARECVFAIL;
    break;
  case FARCALL_LIBRARY:
    code = strstr(message, "SIGSEGV") != NULL  ? STUB_ERROR_SIGSEGV
           : strstr(message, "SIGFPE") != NULL ? STUB_ERROR_SIGFPE
                                               : NINF_ERROR_STUBREADFAIL;
    break;
  case FARCALL_SERVER:
    code = NINF_ERROR_COMPUTATION_REFUSED;
    break;
  case FARCALL_CANCELLED:
    code = NINF_ERROR_SESSION_CANCELED;
    break;
  default:
    code = NINF_INTERNAL_ERROR;
  }
  __atomic_store_n(&ninf_error_code, code, __ATOMIC_RELAXED);
}

/* Sets. */

id_set *new_id_set(void) { return calloc(1, sizeof(id_set)); }

void free_id_set(id_set *set) {
  if (set == NULL)
    return;
  free(set->content);
  free(set);
}

void clear_id_set(id_set *set) {
  if (set != NULL)
    set->length = 0;
}

int id_set_add(id_set *set, int session) {
  int *content;

  if (set == NULL)
    return FALSE;
  content = realloc(set->content, ((size_t)set->length + 1) * sizeof *content);
  if (content == NULL)
    return FALSE;
  content[set->length++] = session;
  set->content = content;
  return TRUE;
}

int id_set_rm(id_set *set, int index) {
  if (set == NULL || index < 0 || index >= set->length)
    return FALSE;
  set->length--;
  memmove(set->content + index, set->content + index + 1,
          (size_t)(set->length - index) * sizeof *set->content);
  return TRUE;
}

int id_set_get_id(id_set *set, int index) {
  return set == NULL || index < 0 || index >= set->length ? -1 : set->content[index];
}

int *id_set_content(id_set *set) { return set == NULL ? NULL : set->content; }

int id_set_length(id_set *set) { return set == NULL ? 0 : set->length; }

void id_set_dump(id_set *set, FILE *file) {
  int index;

  for (index = 0; index < id_set_length(set); index++)
    fprintf(file, "%d ", set->content[index]);
  fprintf(file, "\n");
}

/* Takes the sessions that have ended out of a set. */
static id_set *ended(id_set *set) {
  id_set *over = new_id_set();
  int index = 0;

  while (over != NULL && index < id_set_length(set)) {
    if (Ninf_session_probe(set->content[index])) {
      index++;
    } else {
      id_set_add(over, set->content[index]);
      id_set_rm(set, index);
    }
  }
  return over;
}

id_set *Ninf_wait_and_set(id_set *set) {
  Ninf_wait_and(id_set_content(set), id_set_length(set));
  return ended(set);
}

id_set *Ninf_wait_or_set(id_set *set, int *session) {
  int id = Ninf_wait_or(id_set_content(set), id_set_length(set));

  if (session != NULL)
    *session = id > 0 ? id : 0;
  return ended(set);
}

int Ninf_session_cancel(int session) {
  Ninf_cancel(session);
  return 1;
}

/* Executables. */

struct Ninf_executable {
  char *name;
  /* The session of its last call. */
  int session;
  Ninf_executable_t *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Ninf_executable_t *executables;

/* Takes a share over, and makes a structure of `size` bytes whose first member is the name of the
 * function: NULL if there is no such function. */
static void *named(const farcall_function *function, const char *name, size_t size) {
  char **made;

  if (function == NULL)
    return NULL;
  farcall_internal_give_back(function);
  made = calloc(1, size);
  if (made == NULL || (*made = strdup(name)) == NULL) {
    free(made);
    farcall_internal_out_of_memory();
    return NULL;
  }
  return made;
}

Ninf_executable_t *Ninf_get_executable(const char *name) {
  Ninf_executable_t *made = named(farcall_internal_ninf_function(name), name, sizeof *made);

  if (made == NULL)
    return NULL;
  pthread_mutex_lock(&lock);
  made->next = executables;
  executables = made;
  pthread_mutex_unlock(&lock);
  return made;
}

const char *farcall_internal_ninf_name(const Ninf_executable_t *executable) {
  return executable == NULL ? NULL : executable->name;
}

int farcall_internal_ninf_called(Ninf_executable_t *executable, int session) {
  pthread_mutex_lock(&lock);
  executable->session = session;
  pthread_mutex_unlock(&lock);
  return session;
}

Ninf_executable_t *Ninf_get_executable_from_session(int session) {
  Ninf_executable_t *found;

  pthread_mutex_lock(&lock);
  for (found = executables; found != NULL; found = found->next)
    if (session > 0 && found->session == session)
      break;
  pthread_mutex_unlock(&lock);
  return found;
}

int Ninf_executable_finalize(Ninf_executable_t *executable) {
  Ninf_executable_t **place, *found;

  pthread_mutex_lock(&lock);
  for (place = &executables; *place != NULL && *place != executable; place = &(*place)->next)
    continue;
  found = *place;
  if (found != NULL)
    *place = found->next;
  pthread_mutex_unlock(&lock);
  /* It was finalized before. */
  if (found == NULL)
    return NINF_ERROR;
  free(found->name);
  free(found);
  return NINF_OK;
}

/* Groups. */

enum { MOST_RUNS = 11 };

/* Ninf has no function that frees a group. */
static Ninf_group_t *groups;

struct Ninf_group {
  char *name;
  Ninf_group_t *next;
  farcall_internal_member *members;
  pthread_mutex_t lock;
};

Ninf_group_t *Ninf_group_init(const char *name) {
  Ninf_group_t *group = named(farcall_internal_ninf_on_next_host(name), name, sizeof *group);

  if (group == NULL)
    return NULL;
  pthread_mutex_init(&group->lock, NULL);
  pthread_mutex_lock(&lock);
  group->next = groups;
  groups = group;
  pthread_mutex_unlock(&lock);
  return group;
}

const char *farcall_internal_ninf_group_name(const Ninf_group_t *group) {
  return group == NULL ? NULL : group->name;
}

void farcall_internal_ninf_join(Ninf_group_t *group, farcall_internal_member *member) {
  pthread_mutex_lock(&group->lock);
  member->next = group->members;
  group->members = member;
  pthread_mutex_unlock(&group->lock);
}

/* Whether a call may succeed if it runs again: its library failed, or its server was lost. */
static int may_run_again(void) {
  farcall_status status = farcall_error_status();

  return status == FARCALL_LIBRARY || status == FARCALL_CONNECTION;
}

/* Runs a call again, where that may help; 0 if it does not run. */
static int run_again(Ninf_group_t *group, farcall_internal_member *member) {
  const farcall_function *function;

  if (!may_run_again())
    return 0;
  function = farcall_internal_ninf_on_next_host(group->name);
  if (function == NULL)
    return 0;
  member->session = farcall_internal_ninf_again(function, member);
  return member->session != NINF_ERROR;
}

/* Waits for all calls together: those at other servers move only while a thread waits for them. */
static void wait_together(const farcall_internal_member *member) {
  id_set *set = new_id_set();

  for (; member != NULL; member = member->next)
    id_set_add(set, member->session);
  Ninf_wait_and(id_set_content(set), id_set_length(set));
  free_id_set(set);
}

int Ninf_group_wait_all(Ninf_group_t *group) {
  farcall_internal_member *members = NULL, *member, *next, **place;
  int runs, result = NINF_OK;

  if (group == NULL)
    return NINF_ERROR;
  pthread_mutex_lock(&group->lock);
  member = group->members;
  group->members = NULL;
  pthread_mutex_unlock(&group->lock);
  for (; member != NULL; member = next) { /* The first call first. */
    next = member->next;
    member->next = members;
    members = member;
  }
  for (runs = 1; members != NULL; runs++) {
    wait_together(members);
    for (place = &members; (member = *place) != NULL;) {
      int failed = Ninf_wait(member->session) != NINF_OK;

      if (failed && runs < MOST_RUNS && run_again(group, member)) {
        place = &member->next;
        continue;
      }
      if (failed)
        result = NINF_ERROR;
      *place = member->next;
      farcall_internal_ninf_leave(member);
    }
  }
  return result;
}

const char *Ninf_perror_string(void) { return farcall_error_message(); }
