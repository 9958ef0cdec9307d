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

/*
 * Calls a function by name, with its arguments in the order of the interface: scalars by value in
 * the C type of their declaration (long is int64_t), arrays as pointers, text as const char *.
 * An integer must have the declared width: pass (int64_t)n where the interface says long.
 */
farcall_status farcall_call(farcall_server *server, const char *name, ...);

/* Calls a function by its handle; arguments as for farcall_call(). */
farcall_status farcall_invoke(farcall_function *function, ...);

/* Begins a call by name, and returns its session; 0 where that fails. The arrays are left alone
 * until a wait has reported the end, or a cancel has returned; scalars and text are copied. */
farcall_session farcall_call_async(farcall_server *server, const char *name, ...);

/* Begins a call by its handle; as farcall_call_async(). */
farcall_session farcall_invoke_async(farcall_function *function, ...);

/* The same with the arguments in a list. */
farcall_status farcall_call_list(farcall_function *function, va_list list);
farcall_session farcall_call_list_async(farcall_function *function, va_list list);

/* Submits a call by name, with arguments as for farcall_call(); as farcall_submit_array(). */
farcall_status farcall_submit(farcall_server *server, const char *name, char *id, ...);

/* Fetches the results of a submitted call, with the arguments of the call; as
 * farcall_fetch_array(). */
farcall_status farcall_fetch(farcall_server *server, const char *name, const char *id, ...);
