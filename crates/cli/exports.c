/* A library that refers to the symbols that the command exports. See build.rs. */
extern void farcall_fail(void);
extern void tmpfile(void);
extern void xerbla_(void);

void (*const farcall_exports[])(void) = {farcall_fail, tmpfile, xerbla_};
