/* The estimate of a call, before and after the server knows how long it takes: ADDRESS. */

#include <farcall.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int count, char **words)
{
    if (count != 2)
        return 2;
    farcall_server *server = farcall_connect(words[1]);
    farcall_function *dgemm = farcall_function_of(server, "dgemm");
    char n_ = 'N';
    int n = 300;
    double one = 1, zero = 0, *a = calloc(3 * n * n, sizeof *a);
    void *arguments[] = {&n_, &n_, &n,   &n,  &n,    &one,          &a[0],
                         &n,  &a[n * n], &n, &zero, &a[2 * n * n], &n};
    /* Estimates do not touch arrays. */
    void *sizes[] = {&n_, &n_, &n, &n, &n, &one, NULL, &n, NULL, &n, &zero, NULL, &n};
    farcall_estimate estimate;
    if (farcall_estimate_array(dgemm, sizes, 13, &estimate) != FARCALL_OK)
        return 3;
    if (estimate.sent_bytes != 3u * 8 * n * n || estimate.returned_bytes != 8u * n * n)
        return 4;
    if (estimate.operations != 2.0 * n * n * n || !isnan(estimate.exec) || !isnan(estimate.total))
        return 5;
    for (int i = 0; i < 20; i++)
        if (farcall_call_array(dgemm, arguments, 13) != FARCALL_OK)
            return 6;
    /* The answer of the first question serves for a second. */
    for (time_t end = time(NULL) + 60; isnan(estimate.total);)
        if (time(NULL) > end ||
            farcall_estimate_array(dgemm, sizes, 13, &estimate) != FARCALL_OK)
            return 7;
    if (!(estimate.exec > 0 && estimate.total >= estimate.exec + estimate.latency))
        return 8;
    /* The shapes follow from the scalars, as Fortran has them. */
    size_t shape[2] = {0, 0};
    int half = n / 2;
    sizes[2] = &half;
    if (farcall_column_major(dgemm) != 1 || farcall_column_major(NULL) != 0 ||
        farcall_argument_shape(dgemm, sizes, 13, 6, shape, 2) != 2 || shape[0] != 300 ||
        shape[1] != 300 || farcall_argument_shape(dgemm, sizes, 13, 2, shape, 2) != 0 ||
        farcall_argument_shape(dgemm, sizes, 12, 6, shape, 2) != -1)
        return 12;
    sizes[2] = &n;
    double before = estimate.exec;
    n = 320;
    farcall_estimate_array(dgemm, sizes, 13, &estimate);
    if (estimate.operations != 2.0 * n * n * n || !(estimate.exec > 0.2 * before))
        return 9;
    if (farcall_estimate_array(dgemm, sizes, 12, &estimate) != FARCALL_ARGUMENT)
        return 10;
    if (farcall_estimate_array(dgemm, sizes, 13, NULL) != FARCALL_ARGUMENT)
        return 11;
    printf("estimated\n");
    farcall_disconnect(server);
    return 0;
}
