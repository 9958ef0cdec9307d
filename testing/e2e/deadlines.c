/* A call that must end in time, and one that cannot: ADDRESS. */

#include <farcall.h>
#include <math.h>
#include <stdio.h>

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    farcall_server *server = farcall_connect(words[1]);
    farcall_function *nap = farcall_function_of(server, "nap");
    int slept = 0;
    if (farcall_set_deadline(nap, -1.0) != FARCALL_ARGUMENT ||
        farcall_set_deadline(nap, NAN) != FARCALL_ARGUMENT)
        return 3;
    farcall_set_deadline(nap, 5.0);
    if (farcall_invoke(nap, 40, &slept) != FARCALL_OK)
        return 4;
    farcall_set_deadline(nap, 0.01);
    if (farcall_invoke(nap, 40, &slept) == FARCALL_OK)
        return 5;
    printf("%s\n", farcall_error_message());
    farcall_set_deadline(nap, 1e-12);
    if (farcall_invoke(nap, 40, &slept) == FARCALL_OK)
        return 7;
    farcall_set_deadline(nap, 0.0);
    if (farcall_invoke(nap, 40, &slept) != FARCALL_OK || slept != 40)
        return 6;
    farcall_disconnect(server);
    return 0;
}
