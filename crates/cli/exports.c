/* A library that refers to the symbols that the command exports. See build.rs. */
extern void tmpfile(void);
extern void xerbla_(void);

void (*const farcall_exports[])(void) = {tmpfile, xerbla_};
