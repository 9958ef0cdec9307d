/* The functions of languages.idl. */
#include <complex.h>
#include <ctype.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

void conformance_scalars(char c, short s, int i, long l, float f, double d, double *values)
{
    double all[] = {(double)c, s, i, (double)l, f, d};
    memcpy(values, all, sizeof all);
}

void conformance_axpy(int n, double alpha, const double *x, double *y)
{
    for (int i = 0; i < n; i++)
        y[i] += alpha * x[i];
}

void conformance_types(int n, const short *s, const float *f, const char *c, long *sums)
{
    for (int i = 0; i < n; i++)
        sums[i] = s[i] + (long)f[i] + c[i];
}

void conformance_section(int n, int ld, int *a)
{
    for (int i = 0; i < n; i++)
        for (int j = 0; j < n; j++)
            a[i * ld + j] *= 2;
}

void conformance_shrunk(int size, const double *x, double *sum)
{
    *sum = 0;
    for (int i = 0; i < size; i++)
        *sum += (i + 1) * x[i];
}

void conformance_greet(const char *greeting, const char *name, int room, char *text, int *length)
{
    *length = snprintf(text, room, "%s, %s", greeting, name);
}

void conformance_rotate(int n, double complex by, double complex *z, float complex w,
                        float complex *conjugate)
{
    for (int i = 0; i < n; i++)
        z[i] *= by;
    *conjugate = conjf(w);
}

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

void conformance_sort(int n, const double *x, double *sorted, double *scratch)
{
    memcpy(scratch + n, x, n * sizeof *x);
    qsort(scratch + n, n, sizeof *x, ascending);
    memcpy(sorted, scratch + n, n * sizeof *x);
}

double conformance_dot(int n, const double *x, const double *y)
{
    double sum = 0;
    for (int i = 0; i < n; i++)
        sum += x[i] * y[i];
    return sum;
}

void conformance_grid_(const int *rows, const int *columns, double *a)
{
    for (int j = 0; j < *columns; j++)
        for (int i = 0; i < *rows; i++)
            a[j * *rows + i] = 10 * (i + 1) + (j + 1);
}

void conformance_crash(int n)
{
    volatile int *volatile nowhere = NULL;
    *nowhere = n;
}

void conformance_nap(int ms, int *slept)
{
    struct timespec time = {ms / 1000, ms % 1000 * 1000000L};
    nanosleep(&time, NULL);
    *slept = ms;
}

void conformance_upper(const char *text, const char *capitals, const char *tally, long *bytes)
{
    FILE *in = fopen(text, "r"), *out = fopen(capitals, "w"), *sum = fopen(tally, "r+");
    long before = 0;
    int c;
    *bytes = 0;
    if (in != NULL && out != NULL && sum != NULL && fscanf(sum, "%ld", &before) == 1) {
        for (; (c = getc(in)) != EOF; ++*bytes)
            putc(toupper(c), out);
        rewind(sum);
        fprintf(sum, "%ld\n", before + *bytes);
    }
    if (in != NULL)
        fclose(in);
    if (out != NULL)
        fclose(out);
    if (sum != NULL)
        fclose(sum);
}

void conformance_join(int n, const char *const *words, const char *between, char *text, int *length)
{
    *length = 0;
    for (int i = 0; words[i] != NULL; i++)
        *length += snprintf(text + *length, 64 - *length, "%s%s", i > 0 ? between : "", words[i]);
    if (words[n] != NULL)
        abort();
}

/* Each word has room for 12 characters and NUL. */
void conformance_split(const char *text, char at, int n, char *const *words, int *count)
{
    for (*count = 0; *count < n && text != NULL; ++*count) {
        const char *end = strchr(text, at);
        size_t length = end != NULL ? (size_t)(end - text) : strlen(text);
        snprintf(words[*count], 13, "%.*s", (int)length, text);
        text = end != NULL ? end + 1 : NULL;
    }
    if (words[n] != NULL)
        abort();
}

/* Texts end with blanks; one that is full ends with its field. */
void conformance_capitals_(const int *n, char *words, size_t length)
{
    for (size_t i = 0; i < *n * length; i++) {
        if (words[i] == '\0')
            abort();
        words[i] = (char)toupper(words[i]);
    }
}

void conformance_add(int n, int *value)
{
    static int count; /* of the object: it has a process of its own */
    *value = count += n;
}
