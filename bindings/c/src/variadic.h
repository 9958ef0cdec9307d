/* A complex number passed by value. */
#ifdef __cplusplus
typedef struct {
  float re, im;
} farcall_scomplex;
typedef struct {
  double re, im;
} farcall_dcomplex;
#else
typedef float _Complex farcall_scomplex;
typedef double _Complex farcall_dcomplex;
#endif

/* Room for any scalar. */
typedef union {
  char c;
  int16_t s;
  int32_t i;
  int64_t l;
  float f;
  double d;
  farcall_scomplex sc;
  farcall_dcomplex dc;
  const char *t;
} farcall_scalar;

/* Takes one argument from the list; returns where it is, for farcall_call_array(). */
static inline void *farcall_take(farcall_kind kind, farcall_scalar *scalar, va_list *list) {
  switch (kind) {
  case FARCALL_CHAR:
    scalar->c = (char)va_arg(*list, int);
    return scalar;
  case FARCALL_SHORT:
    scalar->s = (int16_t)va_arg(*list, int);
    return scalar;
  case FARCALL_INT:
    scalar->i = va_arg(*list, int32_t);
    return scalar;
  case FARCALL_LONG:
    scalar->l = va_arg(*list, int64_t);
    return scalar;
  case FARCALL_FLOAT:
    scalar->f = (float)va_arg(*list, double);
    return scalar;
  case FARCALL_DOUBLE:
    scalar->d = va_arg(*list, double);
    return scalar;
  case FARCALL_SCOMPLEX:
    scalar->sc = va_arg(*list, farcall_scomplex);
    return scalar;
  case FARCALL_DCOMPLEX:
    scalar->dc = va_arg(*list, farcall_dcomplex);
    return scalar;
  case FARCALL_TEXT:
    scalar->t = va_arg(*list, const char *);
    return scalar;
  default:
    return va_arg(*list, void *);
  }
}

static inline farcall_status farcall_call_list(farcall_function *function, va_list *list) {
  size_t index, count = farcall_argument_count(function);
  farcall_scalar *scalars;
  void **arguments;
  farcall_status status;

  if (function == NULL)
    return farcall_error_status();
  scalars = (farcall_scalar *)calloc(count + 1, sizeof *scalars);
  arguments = (void **)calloc(count + 1, sizeof *arguments);
  if (scalars == NULL || arguments == NULL)
    abort();
  for (index = 0; index < count; index++)
    arguments[index] = farcall_take(farcall_argument_kind(function, index), &scalars[index], list);
  status = farcall_call_array(function, arguments, count);
  free(arguments);
  free(scalars);
  return status;
}

/*
 * Calls a function by name, with its arguments in the order of the interface: scalars by value in
 * the C type of their declaration (long is int64_t), arrays as pointers, text as const char *.
 * An integer must have the declared width: pass (int64_t)n where the interface says long.
 */
static inline farcall_status farcall_call(farcall_server *server, const char *name, ...) {
  va_list list;
  farcall_status status;

  va_start(list, name);
  status = farcall_call_list(farcall_function_of(server, name), &list);
  va_end(list);
  return status;
}

/* Calls a function by its handle; arguments as for farcall_call(). */
static inline farcall_status farcall_invoke(farcall_function *function, ...) {
  va_list list;
  farcall_status status;

  va_start(list, function);
  status = farcall_call_list(function, &list);
  va_end(list);
  return status;
}
