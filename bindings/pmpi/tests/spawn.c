/* Starts a process, which ends after those that have started it. Their trace must remain. */
#include <mpi.h>
#include <unistd.h>

int main(int argc, char **argv) {
    MPI_Comm parent, child;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        MPI_Comm_spawn(argv[0], MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &child,
                       MPI_ERRCODES_IGNORE);
        MPI_Comm_disconnect(&child);
    } else {
        MPI_Comm_disconnect(&parent);
        sleep(1);
    }
    MPI_Finalize();
    return 0;
}
