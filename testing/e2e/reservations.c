/* Reserves processor elements and bandwidth, uses them, and gives them up: ADDRESS. */

#include <farcall.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static char there[4000000], back[4000000];

static int fails(const char *what)
{
    fprintf(stderr, "%s: %s\n", what, farcall_error_message());
    return 1;
}

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    farcall_options options = {.size = sizeof options, .other_host = 1};
    farcall_server *server = farcall_connect_with(words[1], &options);
    farcall_function *copy = farcall_function_of(server, "copy");
    if (copy == NULL)
        return fails("copy");

    farcall_reservation wanted = {.pes = 1, .ends = 60};
    if (farcall_reserve(server, &wanted) != FARCALL_ARGUMENT)
        return fails("without its size");
    wanted.size = sizeof wanted;
    wanted.begins = 61;
    if (farcall_reserve(server, &wanted) != FARCALL_ARGUMENT)
        return fails("its end before its beginning");
    wanted.begins = 0;
    wanted.up = wanted.down = 4000000;
    if (farcall_reserve(server, &wanted) != FARCALL_OK || wanted.id == 0 || wanted.ends > 60)
        return fails("reserve");
    farcall_reservation more = wanted;
    more.up = 15000000;
    if (farcall_reserve(server, &more) == FARCALL_OK)
        return fails("twice");
    printf("%s\n", farcall_error_message());
    if (more.earliest < 50 || more.earliest > 60)
        return fails("the end of the first one");
    more.latest = INFINITY;
    if (farcall_reserve(server, &more) != FARCALL_OK || more.begins < 50 || more.earliest != 0)
        return fails("as soon as it is free");
    if (farcall_release_reservation(server, more.id) != FARCALL_OK)
        return fails("release of what has not begun");

    memset(there, 7, sizeof there);
    long n = sizeof there;
    farcall_use_reservation(copy, wanted.id);
    if (farcall_invoke(copy, back, there, n) != FARCALL_OK)
        return fails("call");
    if (memcmp(there, back, sizeof there) != 0)
        return fails("another array");
    printf("%.3f s\n", farcall_times_of(copy).total);

    if (farcall_release_reservation(server, wanted.id) != FARCALL_OK)
        return fails("release");
    if (farcall_invoke(copy, back, there, n) == FARCALL_OK)
        return fails("released, and still used");
    printf("%s\n", farcall_error_message());
    farcall_use_reservation(copy, 0);
    if (farcall_invoke(copy, back, there, n) != FARCALL_OK)
        return fails("call of no reservation");
    farcall_disconnect(server);
    return 0;
}
