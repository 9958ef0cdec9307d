/* The functions of table.idl: plain C, which knows nothing of any server. They read lines of
 * numbers with commas between, below one line of names. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_COLUMNS = 256, MOST_LINE = 8192 };

static void give_up(const char *what, const char *path)
{
    fprintf(stderr, "%s %s: %s\n", what, path, strerror(errno));
    abort();
}

static FILE *open_file(const char *path, const char *mode)
{
    FILE *file = fopen(path, mode);
    if (file == NULL)
        give_up("cannot open", path);
    return file;
}

static int numbers(char *line, double *values)
{
    int count = 0;
    for (char *at = line; count < MOST_COLUMNS; at++) {
        values[count++] = strtod(at, &at);
        if (*at != ',')
            break;
    }
    return count;
}

void table_summary(const char *table, const char *summary, long *rows)
{
    double sum[MOST_COLUMNS] = {0}, least[MOST_COLUMNS], most[MOST_COLUMNS], row[MOST_COLUMNS];
    char names[MOST_LINE] = "", line[MOST_LINE], *name = names;
    int columns = 0;
    FILE *in = open_file(table, "r"), *out = open_file(summary, "w");

    *rows = 0;
    if (fgets(names, sizeof names, in) != NULL)
        names[strcspn(names, "\r\n")] = '\0';
    for (; fgets(line, sizeof line, in) != NULL; ++*rows) {
        int count = numbers(line, row);
        if (*rows == 0)
            columns = count;
        for (int i = 0; i < count && i < columns; i++) {
            sum[i] += row[i];
            least[i] = *rows == 0 || row[i] < least[i] ? row[i] : least[i];
            most[i] = *rows == 0 || row[i] > most[i] ? row[i] : most[i];
        }
    }
    fprintf(out, "column,mean,least,greatest\n");
    for (int i = 0; i < columns && name != NULL; i++) {
        const char *this = strsep(&name, ",");
        fprintf(out, "%s,%.6g,%.6g,%.6g\n", this, sum[i] / *rows, least[i], most[i]);
    }
    fclose(in);
    if (fclose(out) != 0)
        give_up("cannot write", summary);
}

void table_scale(const char *table, double factor, long *rows)
{
    double row[MOST_COLUMNS];
    char line[MOST_LINE];
    FILE *in = open_file(table, "r"), *out = tmpfile();
    size_t count;

    if (out == NULL)
        give_up("no temporary file for", table);
    *rows = 0;
    if (fgets(line, sizeof line, in) != NULL)
        fputs(line, out);
    for (; fgets(line, sizeof line, in) != NULL; ++*rows) {
        int columns = numbers(line, row);
        for (int i = 0; i < columns; i++)
            fprintf(out, "%.10g%c", factor * row[i], i + 1 < columns ? ',' : '\n');
    }
    fclose(in);
    rewind(out);
    in = open_file(table, "w");
    while ((count = fread(line, 1, sizeof line, out)) > 0)
        fwrite(line, 1, count, in);
    fclose(out);
    if (fclose(in) != 0)
        give_up("cannot write", table);
}
