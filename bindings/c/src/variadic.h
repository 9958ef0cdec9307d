// A complex number passed by value.
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

// Calls a function by name, with its arguments in the order of the interface: scalars by value in
// the C type of their declaration (long is int64_t), arrays as pointers, texts as const char *.
// An integer must have the declared width: pass (int64_t)n if the interface says long.
farcall_status farcall_call(farcall_server *server, const char *name, ...);

// Calls a function; arguments are as for `farcall_call`.
farcall_status farcall_invoke(farcall_function *function, ...);

// Starts a call by name, and returns its session; 0 on failure. Do not use the arrays until a wait
// has reported the end of the call, or a cancel has returned. Scalars and texts are copied.
farcall_session farcall_call_async(farcall_server *server, const char *name, ...);

// Starts a call of a function, as `farcall_call_async`.
farcall_session farcall_invoke_async(farcall_function *function, ...);

// As `farcall_invoke`, with the arguments in a list.
farcall_status farcall_call_list(farcall_function *function, va_list list);

// As `farcall_invoke_async`, with the arguments in a list.
farcall_session farcall_call_list_async(farcall_function *function, va_list list);

// Submits a durable call by name, with arguments as for `farcall_call`. Otherwise as
// `farcall_submit_array`.
farcall_status farcall_submit(farcall_server *server, const char *name, char *id, ...);

// Fetches the results of a durable call, with the arguments of the call. Otherwise as
// `farcall_fetch_array`.
farcall_status farcall_fetch(farcall_server *server, const char *name, const char *id, ...);
