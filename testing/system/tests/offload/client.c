/* A program that uses the client library itself, beside its calls of LAPACK. A forked child gives
   up the connection that the program has made. The files that the child opens must stay open. */
#include <farcall.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

void dgesv_(int *n, int *nrhs, double *a, int *lda, int *pivots, double *b, int *ldb, int *info);

int main(int count, char **words) {
    double a[] = {2, 0, 0, 4}, b[] = {2, 4};
    int n = 2, one = 1, pivots[2], info = -1;
    dgesv_(&n, &one, a, &n, pivots, b, &n, &info);
    farcall_server *server = farcall_connect(count > 1 ? words[1] : NULL);
    if (server == NULL || info != 0 || b[0] != 1 || b[1] != 1) {
        fprintf(stderr, "info %d, b %g %g: %s\n", info, b[0], b[1], farcall_error_message());
        return 1;
    }
    pid_t child = fork();
    if (child == 0) {
        int opened[16];
        for (int i = 0; i < 16; i++)
            opened[i] = open("/dev/null", O_RDONLY);
        farcall_disconnect(server);
        for (int i = 0; i < 16; i++)
            if (fcntl(opened[i], F_GETFD) < 0)
                _exit(1);
        _exit(0);
    }
    int status = -1;
    waitpid(child, &status, 0);
    farcall_disconnect(server);
    printf("the child's descriptors are whole: %d\n", status == 0);
    return 0;
}
