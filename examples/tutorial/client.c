/* The client of docs/tutorial.md in C: `client [SERVER]`. */
#include <farcall.h>
#include <stdio.h>

enum { N = 30 };

static void monitor(int32_t sweep, double change, int32_t *stop)
{
    if (sweep % 100 == 0)
        printf("sweep %d: largest change %f\n", sweep, change);
    *stop = sweep >= 1000;
}

int main(int argc, char **argv)
{
    static double u[N][N];
    int32_t sweeps;
    farcall_server *server = farcall_connect(argc > 1 ? argv[1] : NULL);

    for (int j = 0; j < N; j++)
        u[0][j] = 100; /* the first row is hot */
    if (farcall_call(server, "plate/relax", N, 1e-3, u, &sweeps, monitor) != FARCALL_OK) {
        fprintf(stderr, "%s\n", farcall_error_message());
        return 1;
    }
    printf("%d sweeps, %.3f degrees in the middle\n", sweeps, u[N / 2][N / 2]);
    farcall_disconnect(server);
    return 0;
}
