/* Functions for the Fortran module: they convert descriptors of Fortran 2018 to values of
 * farcall.h. */
#include "farcall.h"

#include <ISO_Fortran_binding.h>
#include <string.h>

enum {
  MOST = 40,
  /* No kind: that of an array that is not allocated. */
  NOT_ALLOCATED = -3
};

static farcall_kind kind_of(CFI_type_t type) {
  switch (type) {
  case CFI_type_int8_t:
  case CFI_type_char:
    return FARCALL_CHAR;
  case CFI_type_int16_t:
    return FARCALL_SHORT;
  case CFI_type_int32_t:
    return FARCALL_INT;
  case CFI_type_int64_t:
    return FARCALL_LONG;
  case CFI_type_float:
    return FARCALL_FLOAT;
  case CFI_type_double:
    return FARCALL_DOUBLE;
  case CFI_type_float_Complex:
    return FARCALL_SCOMPLEX;
  case CFI_type_double_Complex:
    return FARCALL_DCOMPLEX;
  default:
    return FARCALL_ARRAY;
  }
}

/* What FARCALL_ROWS points to. */
typedef struct {
  void *first;
  size_t count;
} texts;

/* The text of a scalar, without trailing blanks. */
static size_t text_length(const CFI_cdesc_t *given) {
  const char *text = given->base_addr;
  size_t length = given->elem_len;
  while (length > 0 && text[length - 1] == ' ')
    length--;
  return length;
}

/* The length of a dimension. gfortran gives a section without elements, such as a(5:2), a negative
 * one. */
static size_t length_of(const CFI_cdesc_t *given, CFI_rank_t rank) {
  const CFI_index_t extent = given->dim[rank].extent;
  return extent > 0 ? (size_t)extent : 0;
}

/* Whether it is an array of assumed size, as a(*), whose length its caller alone knows. */
static int is_of_assumed_size(const CFI_cdesc_t *given) {
  return given->rank > 0 && given->dim[given->rank - 1].extent == -1;
}

/* The kind of such an array: FARCALL_ARRAY, which the library trusts as it trusts a pointer of C,
 * if its elements are those of the interface. */
static int kind_without_size(CFI_type_t type, farcall_kind wanted, farcall_kind element) {
  if (wanted != FARCALL_ARRAY || element == FARCALL_TEXT || kind_of(type) == FARCALL_ARRAY)
    return FARCALL_REFUSED;
  return kind_of(type) == element ? (int)FARCALL_ARRAY : (int)kind_of(type);
}

/* Texts of several characters each, of which the library compares the number with the interface.
 * `rows` remains until the call has begun. */
static void set_rows(farcall_value *value, const CFI_cdesc_t *given, texts *rows) {
  CFI_rank_t rank;

  rows->first = given->base_addr;
  rows->count = 1;
  for (rank = 0; rank < given->rank; rank++)
    rows->count *= length_of(given, rank);
  value->data = rows;
  value->kind = FARCALL_ROWS;
}

static farcall_value value_of(const CFI_cdesc_t *given, const farcall_function *function,
                              size_t index, texts *rows) {
  const farcall_kind wanted = farcall_argument_kind(function, index);
  farcall_value value = {NULL, 0, FARCALL_REFUSED, 0};
  CFI_rank_t rank;

  if (given == NULL)
    return value;
  value.kind = kind_of(given->type) == FARCALL_ARRAY ? FARCALL_REFUSED : (int)kind_of(given->type);
  /* The lengths of an array that is not allocated are those of garbage: it has no elements. */
  if (given->base_addr == NULL)
    return value;
  /* Texts without characters have no place in memory that could be wrong. */
  if (given->rank > 0 && given->elem_len > 0 && !CFI_is_contiguous(given))
    value.kind = FARCALL_SCATTERED;
  value.data = given->base_addr;
  value.bytes = given->elem_len;
  /* A type(farcall_callback) holds the address of the function, a type(farcall_handle) that of a
     handle, which the library knows: anything else is refused by its kind. */
  if (given->type == CFI_type_struct && given->rank == 0 && given->elem_len == sizeof(void *)) {
    memcpy(&value.data, given->base_addr, sizeof value.data);
    if (wanted == FARCALL_FUNCTION)
      value.kind = FARCALL_FUNCTION;
    return value;
  }
  if (is_of_assumed_size(given)) {
    value.kind = kind_without_size(given->type, wanted, farcall_argument_type(function, index));
    return value;
  }
  for (rank = 0; rank < given->rank; rank++)
    value.bytes *= length_of(given, rank);
  if (wanted == FARCALL_TEXT && given->type == CFI_type_char && given->rank == 0) {
    value.kind = FARCALL_TEXT;
    value.bytes = text_length(given);
  }
  if (wanted == FARCALL_ARRAY && value.kind == FARCALL_CHAR && given->elem_len > 1 &&
      farcall_argument_type(function, index) == FARCALL_TEXT)
    set_rows(&value, given, rows);
  return value;
}

static size_t values_of(const farcall_function *function, CFI_cdesc_t **given,
                        farcall_value *values, texts *rows) {
  size_t index, count = MOST;
  while (count > 0 && given[count - 1] == NULL)
    count--;
  for (index = 0; index < count; index++)
    values[index] = value_of(given[index], function, index, &rows[index]);
  return count;
}

/* A function that takes descriptors, with absent ones at the end, and calls `call`. */
#define CALLS(result, name, call)                                                                  \
  result name(const farcall_function *function,                                                    \
      CFI_cdesc_t *a1, CFI_cdesc_t *a2, CFI_cdesc_t *a3, CFI_cdesc_t *a4, CFI_cdesc_t *a5,         \
      CFI_cdesc_t *a6, CFI_cdesc_t *a7, CFI_cdesc_t *a8, CFI_cdesc_t *a9, CFI_cdesc_t *a10,        \
      CFI_cdesc_t *a11, CFI_cdesc_t *a12, CFI_cdesc_t *a13, CFI_cdesc_t *a14, CFI_cdesc_t *a15,    \
      CFI_cdesc_t *a16, CFI_cdesc_t *a17, CFI_cdesc_t *a18, CFI_cdesc_t *a19, CFI_cdesc_t *a20,    \
      CFI_cdesc_t *a21, CFI_cdesc_t *a22, CFI_cdesc_t *a23, CFI_cdesc_t *a24, CFI_cdesc_t *a25,    \
      CFI_cdesc_t *a26, CFI_cdesc_t *a27, CFI_cdesc_t *a28, CFI_cdesc_t *a29, CFI_cdesc_t *a30,    \
      CFI_cdesc_t *a31, CFI_cdesc_t *a32, CFI_cdesc_t *a33, CFI_cdesc_t *a34, CFI_cdesc_t *a35,    \
      CFI_cdesc_t *a36, CFI_cdesc_t *a37, CFI_cdesc_t *a38, CFI_cdesc_t *a39, CFI_cdesc_t *a40) {  \
    CFI_cdesc_t *given[MOST] = {                                                                   \
        a1, a2, a3, a4, a5, a6, a7, a8, a9, a10, a11, a12, a13, a14, a15, a16, a17, a18, a19,      \
        a20, a21, a22, a23, a24, a25, a26, a27, a28, a29, a30, a31, a32, a33, a34, a35, a36, a37,  \
        a38, a39, a40};                                                                            \
    farcall_value values[MOST];                                                                    \
    texts rows[MOST];                                                                              \
    const size_t count = values_of(function, given, values, rows);                                 \
    return call(function, values, count);                                                          \
  }

CALLS(farcall_status, farcall_fortran_call, farcall_call_values)
CALLS(farcall_session, farcall_fortran_call_async, farcall_call_values_async)

/* A type(farcall_handle). */
typedef struct {
  farcall_handle *handle;
} held;

held farcall_fortran_put(farcall_server *server, CFI_cdesc_t *array) {
  size_t shape[CFI_MAX_RANK];
  /* A stored array has numbers, and one character is one. */
  const int is_text = array->type == CFI_type_char && array->elem_len != 1;
  const int element = is_text ? (int)FARCALL_TEXT : (int)kind_of(array->type);
  /* NULL would mean zeros of any shape. */
  const int kind = array->base_addr == NULL ? NOT_ALLOCATED : element;
  CFI_rank_t rank;
  held result;

  for (rank = 0; rank < array->rank; rank++)
    shape[rank] = length_of(array, rank);
  if (is_of_assumed_size(array))
    shape[array->rank - 1] = SIZE_MAX;
  result.handle = farcall_put(server, kind, shape, (size_t)array->rank, 1, array->base_addr);
  return result;
}

farcall_status farcall_fortran_get(held given, CFI_cdesc_t *array) {
  size_t bytes = array->elem_len;
  CFI_rank_t rank;

  for (rank = 0; rank < array->rank; rank++)
    bytes *= length_of(array, rank);
  if (is_of_assumed_size(array))
    bytes = SIZE_MAX;
  /* Logicals have no kind here, and are as long as those of the stored array. */
  if (kind_of(array->type) == FARCALL_ARRAY)
    return farcall_get(given.handle, array->base_addr, bytes);
  return farcall_get_typed(given.handle, kind_of(array->type), array->base_addr, bytes);
}
