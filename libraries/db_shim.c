/* What db.idl calls: the array that the server has read becomes the result. */
#include <string.h>

void farcall_db_table(long rows, int columns, const double *source, double *table)
{
    memcpy(table, source, sizeof(double) * rows * columns);
}

void farcall_db_column(long rows, const double *source, double *values)
{
    memcpy(values, source, sizeof(double) * rows);
}

void farcall_db_integers(long rows, const long *source, long *values)
{
    memcpy(values, source, sizeof(long) * rows);
}
