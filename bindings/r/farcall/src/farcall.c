/*
 * The calls of libfarcall that R needs. R packs each argument into memory of the exact type (a
 * slot), starts the call with all slots, and unpacks the slots that the call has written. A slot is
 * a vector of R: the garbage collector owns all memory of a call.
 */
#include <farcall.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <R.h>
#include <Rinternals.h>
#include <R_ext/Rdynload.h>
#include <string.h>

/* The largest whole numbers that a number of R holds exactly. */
#define EXACT 9007199254740992.0
/* Marks the type of an integer without a sign. */
#define UNSIGNED 0x100
/* Most dimensions of an array. */
#define DIMENSIONS 16

/* The status of the last error. The library may know a later one by the time R asks: the garbage
 * collector ends calls. */
static int last_status;

static void fail(void)
{
    last_status = farcall_error_status();
    Rf_error("%s", farcall_error_message());
}

static void *address_of(SEXP pointer)
{
    void *address = TYPEOF(pointer) == EXTPTRSXP ? R_ExternalPtrAddr(pointer) : NULL;
    if (address == NULL) {
        last_status = FARCALL_ARGUMENT;
        Rf_error("this object of farcall is not valid in this session of R: make it again");
    }
    return address;
}

/* The memory of a slot. */
static void *memory_of(SEXP slot)
{
    switch (TYPEOF(slot)) {
    case REALSXP:
        return REAL(slot);
    case INTSXP:
        return INTEGER(slot);
    case CPLXSXP:
        return COMPLEX(slot);
    case RAWSXP:
        return RAW(slot);
    default:
        return NULL;
    }
}

static size_t bytes_of_type(int type)
{
    switch (type & ~UNSIGNED) {
    case FARCALL_CHAR:
        return 1;
    case FARCALL_SHORT:
        return 2;
    case FARCALL_INT:
    case FARCALL_FLOAT:
        return 4;
    case FARCALL_DCOMPLEX:
        return 16;
    default:
        return 8;
    }
}

/* The type of R whose vectors have elements of this type; RAWSXP if none has. */
static SEXPTYPE vector_of(int type)
{
    switch (type) {
    case FARCALL_INT:
        return INTSXP;
    case FARCALL_DOUBLE:
        return REALSXP;
    case FARCALL_DCOMPLEX:
        return CPLXSXP;
    default:
        return RAWSXP;
    }
}

static R_xlen_t elements_of(SEXP slot, int type)
{
    R_xlen_t length = Rf_xlength(slot);
    return TYPEOF(slot) == RAWSXP ? length / (R_xlen_t)bytes_of_type(type) : length;
}

/* ---- Connect ---- */

static void disconnect(SEXP pointer)
{
    farcall_disconnect(R_ExternalPtrAddr(pointer));
    R_ClearExternalPtr(pointer);
}

SEXP fc_connect(SEXP address, SEXP timeout)
{
    farcall_options options = {.size = sizeof options, .timeout = Rf_asReal(timeout)};
    const char *text = Rf_isNull(address) ? NULL : CHAR(STRING_ELT(address, 0));
    farcall_server *server = farcall_connect_with(text, &options);
    if (server == NULL)
        fail();
    SEXP pointer = PROTECT(R_MakeExternalPtr(server, R_NilValue, R_NilValue));
    R_RegisterCFinalizerEx(pointer, disconnect, TRUE);
    UNPROTECT(1);
    return pointer;
}

static SEXP function_pointer(farcall_function *function, SEXP owner)
{
    if (function == NULL)
        fail();
    /* It is valid as long as its server or object, which it keeps. */
    return R_MakeExternalPtr(function, R_NilValue, owner);
}

SEXP fc_function(SEXP server, SEXP name)
{
    const char *text = CHAR(STRING_ELT(name, 0));
    return function_pointer(farcall_function_of(address_of(server), text), server);
}

static void drop_object(SEXP pointer)
{
    /* If the server has been disconnected, so has the object ended. */
    if (R_ExternalPtrAddr(R_ExternalPtrProtected(pointer)) != NULL)
        farcall_drop_object(R_ExternalPtrAddr(pointer));
    R_ClearExternalPtr(pointer);
}

SEXP fc_object(SEXP server, SEXP name)
{
    farcall_object *object = farcall_object_new(address_of(server), CHAR(STRING_ELT(name, 0)));
    if (object == NULL)
        fail();
    SEXP pointer = PROTECT(R_MakeExternalPtr(object, R_NilValue, server));
    R_RegisterCFinalizerEx(pointer, drop_object, TRUE);
    UNPROTECT(1);
    return pointer;
}

SEXP fc_method(SEXP object, SEXP name)
{
    const char *text = CHAR(STRING_ELT(name, 0));
    return function_pointer(farcall_object_method(address_of(object), text), object);
}

/* What R must know of a function. */
SEXP fc_interface(SEXP pointer)
{
    const farcall_function *function = address_of(pointer);
    int count = (int)farcall_argument_count(function);
    const char *fields[] = {"name", "text", "column_major", "arguments", "kind",
                            "type", "read", "written",      ""};
    SEXP told = PROTECT(Rf_mkNamed(VECSXP, fields));
    SET_VECTOR_ELT(told, 0, Rf_mkString(farcall_function_name(function)));
    SET_VECTOR_ELT(told, 1, Rf_mkString(farcall_function_interface(function)));
    SET_VECTOR_ELT(told, 2, Rf_ScalarLogical(farcall_column_major(function)));
    SET_VECTOR_ELT(told, 3, Rf_allocVector(STRSXP, count));
    for (int field = 4; field < 6; field++)
        SET_VECTOR_ELT(told, field, Rf_allocVector(INTSXP, count));
    for (int field = 6; field < 8; field++)
        SET_VECTOR_ELT(told, field, Rf_allocVector(LGLSXP, count));
    for (int index = 0; index < count; index++) {
        const char *name = farcall_argument_name(function, index);
        SET_STRING_ELT(VECTOR_ELT(told, 3), index, Rf_mkChar(name == NULL ? "" : name));
        int mark = farcall_argument_unsigned(function, index) ? UNSIGNED : 0;
        int kind = farcall_argument_kind(function, index);
        INTEGER(VECTOR_ELT(told, 4))[index] = kind == FARCALL_ARRAY ? kind : kind | mark;
        INTEGER(VECTOR_ELT(told, 5))[index] = farcall_argument_type(function, index) | mark;
        LOGICAL(VECTOR_ELT(told, 6))[index] = farcall_argument_read(function, index);
        LOGICAL(VECTOR_ELT(told, 7))[index] = farcall_argument_written(function, index);
    }
    UNPROTECT(1);
    return told;
}

/* ---- Pack and unpack ---- */

static double real_at(SEXP value, R_xlen_t place, const char *name)
{
    switch (TYPEOF(value)) {
    case REALSXP:
        return REAL(value)[place];
    case INTSXP:
    case LGLSXP:
        if (INTEGER(value)[place] == NA_INTEGER)
            Rf_error("argument `%s` has an NA, which is no integer", name);
        return INTEGER(value)[place];
    case RAWSXP:
        return RAW(value)[place];
    default:
        Rf_error("argument `%s` must be numeric, not %s", name, Rf_type2char(TYPEOF(value)));
    }
}

/* Values whose meaning is not that of their numbers. */
static void refuse_classes(SEXP value, const char *name)
{
    if (Rf_inherits(value, "factor"))
        Rf_error("argument `%s` is a factor: pass as.integer(x) for its codes", name);
    if (Rf_inherits(value, "integer64"))
        Rf_error("argument `%s` is an integer64, which R keeps in the bits of numbers: pass "
                 "as.numeric(x)",
                 name);
}

/* The number as a `float`. Digits of a fraction may be lost, but no others. */
static float float_of(double number, int is_whole, const char *name)
{
    float near = (float)number;
    if (isfinite(number) && !isfinite(near))
        Rf_error("argument `%s`: %g is too large for a float", name, number);
    if (is_whole && near != number)
        Rf_error("argument `%s`: a float cannot hold %.0f exactly", name, number);
    return near;
}

static int64_t whole_at(SEXP value, R_xlen_t place, double least, double most, const char *name)
{
    double number = real_at(value, place, name);
    if (!(number >= least && number <= most) || number != trunc(number))
        Rf_error("argument `%s`: %.15g is not a whole number from %.0f to %.0f", name, number,
                 least, most);
    return (int64_t)number;
}

static Rcomplex complex_at(SEXP value, R_xlen_t place, const char *name)
{
    if (TYPEOF(value) == CPLXSXP)
        return COMPLEX(value)[place];
    Rcomplex number;
    number.r = real_at(value, place, name);
    number.i = 0.0;
    return number;
}

static void pack_one(void *memory, int type, SEXP value, R_xlen_t place, const char *name)
{
    switch (type) {
    case FARCALL_CHAR:
        if (TYPEOF(value) == RAWSXP)
            ((unsigned char *)memory)[place] = RAW(value)[place];
        else
            ((signed char *)memory)[place] = whole_at(value, place, SCHAR_MIN, SCHAR_MAX, name);
        break;
    case FARCALL_CHAR | UNSIGNED:
        ((unsigned char *)memory)[place] = whole_at(value, place, 0, UCHAR_MAX, name);
        break;
    case FARCALL_SHORT:
        ((int16_t *)memory)[place] = whole_at(value, place, INT16_MIN, INT16_MAX, name);
        break;
    case FARCALL_SHORT | UNSIGNED:
        ((uint16_t *)memory)[place] = whole_at(value, place, 0, UINT16_MAX, name);
        break;
    case FARCALL_INT:
        ((int32_t *)memory)[place] = whole_at(value, place, INT32_MIN, INT32_MAX, name);
        break;
    case FARCALL_INT | UNSIGNED:
        ((uint32_t *)memory)[place] = whole_at(value, place, 0, UINT32_MAX, name);
        break;
    case FARCALL_LONG:
        ((int64_t *)memory)[place] = whole_at(value, place, -EXACT, EXACT, name);
        break;
    case FARCALL_LONG | UNSIGNED:
        ((int64_t *)memory)[place] = whole_at(value, place, 0, EXACT, name);
        break;
    case FARCALL_FLOAT: {
        int is_whole = TYPEOF(value) == INTSXP;
        ((float *)memory)[place] = float_of(real_at(value, place, name), is_whole, name);
        break;
    }
    case FARCALL_DOUBLE:
        ((double *)memory)[place] = real_at(value, place, name);
        break;
    case FARCALL_SCOMPLEX: {
        Rcomplex number = complex_at(value, place, name);
        int is_whole = TYPEOF(value) == INTSXP;
        ((float *)memory)[2 * place] = float_of(number.r, is_whole, name);
        ((float *)memory)[2 * place + 1] = float_of(number.i, 0, name);
        break;
    }
    case FARCALL_DCOMPLEX:
        ((Rcomplex *)memory)[place] = complex_at(value, place, name);
        break;
    default:
        Rf_error("argument `%s` has a type that R cannot pass", name);
    }
}

/* The texts of a value, of which none may be missing. */
static void check_texts(SEXP value, const char *name)
{
    if (TYPEOF(value) != STRSXP)
        Rf_error("argument `%s` must be a character vector", name);
    for (R_xlen_t place = 0; place < Rf_xlength(value); place++)
        if (STRING_ELT(value, place) == NA_STRING)
            Rf_error("argument `%s` has an NA, which is no text", name);
}

/* Texts one after the other, each with a NUL, for an array that a call only reads. */
SEXP fc_pack_texts(SEXP value, SEXP the_name)
{
    check_texts(value, CHAR(STRING_ELT(the_name, 0)));
    R_xlen_t count = Rf_xlength(value), length = 0;
    for (R_xlen_t place = 0; place < count; place++)
        length += (R_xlen_t)strlen(Rf_translateCharUTF8(STRING_ELT(value, place))) + 1;
    SEXP slot = PROTECT(Rf_allocVector(RAWSXP, length));
    char *end = (char *)RAW(slot);
    for (R_xlen_t place = 0; place < count; place++) {
        const char *text = Rf_translateCharUTF8(STRING_ELT(value, place));
        memcpy(end, text, strlen(text) + 1);
        end += strlen(text) + 1;
    }
    UNPROTECT(1);
    return slot;
}

/* Text as bytes without the NUL, or pointers to several texts, which `value` must outlive. */
static SEXP pack_texts(int type, SEXP value, const char *name)
{
    check_texts(value, name);
    R_xlen_t count = Rf_xlength(value);
    if (type == FARCALL_TEXT) {
        if (count != 1)
            Rf_error("argument `%s` must be one text, not %.0f", name, (double)count);
        const char *text = Rf_translateCharUTF8(STRING_ELT(value, 0));
        SEXP slot = Rf_allocVector(RAWSXP, (R_xlen_t)strlen(text));
        if (Rf_xlength(slot) > 0)
            memcpy(RAW(slot), text, strlen(text));
        return slot;
    }
    SEXP slot = Rf_allocVector(RAWSXP, count * (R_xlen_t)sizeof(char *));
    const char **texts = (const char **)RAW(slot);
    for (R_xlen_t place = 0; place < count; place++)
        texts[place] = CHAR(STRING_ELT(value, place));
    return slot;
}

/* A slot with this value. The memory of R's own vectors is used as it is if it is only read. */
SEXP fc_pack(SEXP value, SEXP the_type, SEXP is_written, SEXP the_name)
{
    int type = Rf_asInteger(the_type);
    const char *name = CHAR(STRING_ELT(the_name, 0));
    if (type == FARCALL_TEXT || type == FARCALL_TEXTS)
        return pack_texts(type, value, name);
    refuse_classes(value, name);
    SEXPTYPE own = vector_of(type);
    if (TYPEOF(value) == own && own != RAWSXP) {
        R_xlen_t count = Rf_xlength(value);
        for (R_xlen_t place = 0; own == INTSXP && place < count; place++)
            real_at(value, place, name);
        return Rf_asLogical(is_written) ? Rf_duplicate(value) : value;
    }
    R_xlen_t count = Rf_xlength(value);
    R_xlen_t length = own == RAWSXP ? count * (R_xlen_t)bytes_of_type(type) : count;
    SEXP slot = PROTECT(Rf_allocVector(own, length));
    for (R_xlen_t place = 0; place < count; place++)
        pack_one(memory_of(slot), type, value, place, name);
    UNPROTECT(1);
    return slot;
}

/* A slot of zeros for an array that the call fills. */
SEXP fc_room(SEXP the_type, SEXP count)
{
    int type = Rf_asInteger(the_type);
    SEXPTYPE own = vector_of(type);
    double length = Rf_asReal(count) * (own == RAWSXP ? (double)bytes_of_type(type) : 1.0);
    SEXP slot = Rf_allocVector(own, (R_xlen_t)length);
    size_t element = own == RAWSXP ? 1 : bytes_of_type(type);
    if (length > 0)
        memset(memory_of(slot), 0, (size_t)length * element);
    return slot;
}

static double number_at(const void *memory, int type, R_xlen_t place)
{
    switch (type) {
    case FARCALL_SHORT:
        return ((const int16_t *)memory)[place];
    case FARCALL_SHORT | UNSIGNED:
        return ((const uint16_t *)memory)[place];
    case FARCALL_INT | UNSIGNED:
        return ((const uint32_t *)memory)[place];
    case FARCALL_LONG: {
        int64_t number = ((const int64_t *)memory)[place];
        if (number > (int64_t)EXACT || number < -(int64_t)EXACT)
            Rf_warning("a result has more digits than a number of R");
        return (double)number;
    }
    case FARCALL_LONG | UNSIGNED: {
        uint64_t number = ((const uint64_t *)memory)[place];
        if (number > (uint64_t)EXACT)
            Rf_warning("a result has more digits than a number of R");
        return (double)number;
    }
    default:
        return ((const float *)memory)[place];
    }
}

static SEXP unpack_texts(SEXP slot)
{
    size_t count = Rf_xlength(slot) / sizeof(char *);
    char **texts = (char **)RAW(slot);
    SEXP value = PROTECT(Rf_allocVector(STRSXP, (R_xlen_t)count));
    for (size_t place = 0; place < count; place++) {
        const char *text = texts[place] == NULL ? "" : texts[place];
        SET_STRING_ELT(value, (R_xlen_t)place, Rf_mkCharCE(text, CE_UTF8));
    }
    farcall_free_texts(texts, count);
    UNPROTECT(1);
    return value;
}

/* Integers, as numbers if one of them is that which R has for NA. */
static SEXP integers_of(SEXP slot)
{
    R_xlen_t count = Rf_xlength(slot), place = 0;
    const int *numbers = INTEGER(slot);
    while (place < count && numbers[place] != NA_INTEGER)
        place++;
    if (place == count)
        return slot;
    SEXP value = PROTECT(Rf_allocVector(REALSXP, count));
    for (place = 0; place < count; place++)
        REAL(value)[place] = numbers[place];
    UNPROTECT(1);
    return value;
}

/* The value that a call has written to a slot. */
SEXP fc_unpack(SEXP slot, SEXP the_type)
{
    int type = Rf_asInteger(the_type);
    if (type == FARCALL_TEXTS)
        return unpack_texts(slot);
    int size = type & ~UNSIGNED;
    if (TYPEOF(slot) == INTSXP)
        return integers_of(slot);
    if (TYPEOF(slot) != RAWSXP || size == FARCALL_CHAR)
        return slot;
    R_xlen_t count = elements_of(slot, type);
    SEXPTYPE wanted = size == FARCALL_SCOMPLEX ? CPLXSXP : size == FARCALL_SHORT ? INTSXP : REALSXP;
    SEXP value = PROTECT(Rf_allocVector(wanted, count));
    for (R_xlen_t place = 0; place < count; place++) {
        if (wanted == CPLXSXP) {
            COMPLEX(value)[place].r = ((float *)RAW(slot))[2 * place];
            COMPLEX(value)[place].i = ((float *)RAW(slot))[2 * place + 1];
        } else if (wanted == INTSXP) {
            INTEGER(value)[place] = (int)number_at(RAW(slot), type, place);
        } else {
            REAL(value)[place] = number_at(RAW(slot), type, place);
        }
    }
    UNPROTECT(1);
    return value;
}

/* The addresses of the texts of a slot, each with a NUL, as an argument of a call. */
static void *texts_of(SEXP slot)
{
    size_t length = TYPEOF(slot) == RAWSXP ? Rf_xlength(slot) : 0;
    char *bytes = R_alloc(length + 1, 1);
    /* NULL after the last one, if the call wants more of them. */
    char **texts = (char **)R_alloc(length + 2, sizeof(char *));
    if (length > 0)
        memcpy(bytes, RAW(slot), length);
    bytes[length] = '\0';
    size_t count = 0, start = 0;
    for (size_t place = 0; place <= length; place++) {
        if (bytes[place] == '\0') {
            texts[count++] = bytes + start;
            start = place + 1;
        }
    }
    texts[count] = NULL;
    return texts;
}

/* The shape of an array argument; NULL for a scalar. */
SEXP fc_shape(SEXP function, SEXP slots, SEXP types, SEXP the_index)
{
    size_t count = Rf_xlength(slots), shape[DIMENSIONS];
    void **arguments = (void **)R_alloc(count + 1, sizeof(void *));
    for (size_t index = 0; index < count; index++) {
        SEXP slot = VECTOR_ELT(slots, (R_xlen_t)index);
        arguments[index] = memory_of(slot);
        if (INTEGER(types)[index] == FARCALL_TEXT)
            arguments[index] = texts_of(slot);
    }
    int rank = farcall_argument_shape(address_of(function), arguments, count,
                                      (size_t)Rf_asInteger(the_index), shape, DIMENSIONS);
    if (rank < 0)
        fail();
    if (rank == 0)
        return R_NilValue;
    SEXP told = PROTECT(Rf_allocVector(REALSXP, rank));
    for (int place = 0; place < rank && place < DIMENSIONS; place++)
        REAL(told)[place] = (double)shape[place];
    UNPROTECT(1);
    return told;
}

/* ---- Call ---- */

/* Frees the texts of a call that nobody has unpacked. */
static void free_texts(SEXP slots, SEXP types)
{
    for (R_xlen_t index = 0; index < Rf_xlength(slots); index++) {
        SEXP slot = VECTOR_ELT(slots, index);
        if (INTEGER(types)[index] == FARCALL_TEXTS)
            farcall_free_texts((char **)RAW(slot), (size_t)Rf_xlength(slot) / sizeof(char *));
    }
}

static void give_up(SEXP pointer)
{
    farcall_session *session = R_ExternalPtrAddr(pointer);
    if (session == NULL)
        return;
    farcall_cancel(*session);
    /* Until a call has ended well, its texts are those of R. */
    if (farcall_probe(*session) == FARCALL_OK)
        free_texts(R_ExternalPtrProtected(pointer), R_ExternalPtrTag(pointer));
    R_Free(session);
    R_ClearExternalPtr(pointer);
}

/* A scalar without a sign, in a type that has a sign and holds it. */
static void widen(farcall_value *value, int type)
{
    if (type != (FARCALL_SHORT | UNSIGNED) && type != (FARCALL_INT | UNSIGNED))
        return;
    int64_t *wide = (int64_t *)R_alloc(1, sizeof *wide);
    *wide = (int64_t)number_at(value->data, type, 0);
    *value = (farcall_value){.data = wide, .kind = FARCALL_LONG, .bytes = sizeof *wide};
}

/* Starts a call. Its session keeps the slots, which the call uses until its end. */
SEXP fc_start(SEXP function, SEXP slots, SEXP types)
{
    size_t count = Rf_xlength(slots);
    farcall_value *values = (farcall_value *)R_alloc(count + 1, sizeof(farcall_value));
    for (size_t index = 0; index < count; index++) {
        SEXP slot = VECTOR_ELT(slots, (R_xlen_t)index);
        int type = INTEGER(types)[index];
        farcall_value value = {.data = memory_of(slot), .kind = type & ~UNSIGNED};
        value.bytes = (size_t)elements_of(slot, type) * bytes_of_type(type);
        if (type == FARCALL_TEXT)
            value.bytes = (size_t)Rf_xlength(slot);
        if (farcall_argument_kind(address_of(function), index) != FARCALL_ARRAY)
            widen(&value, type);
        values[index] = value;
    }
    farcall_session *session = R_Calloc(1, farcall_session);
    SEXP pointer = PROTECT(R_MakeExternalPtr(session, types, slots));
    R_RegisterCFinalizerEx(pointer, give_up, TRUE);
    *session = farcall_call_values_async(address_of(function), values, count);
    if (*session == 0)
        fail();
    UNPROTECT(1);
    return pointer;
}

/* Waits for the end of a call, for so many seconds at most. Returns whether it has ended. */
SEXP fc_wait(SEXP pointer, SEXP seconds)
{
    farcall_session *session = address_of(pointer);
    farcall_status status = farcall_wait(*session, Rf_asReal(seconds));
    if (status == FARCALL_RUNNING) {
        /* R itself looks for an interrupt once in many waits. */
        R_CheckUserInterrupt();
        return Rf_ScalarLogical(FALSE);
    }
    if (status == FARCALL_CANCELLED) {
        last_status = status;
        Rf_error("the call was cancelled");
    }
    if (status != FARCALL_OK)
        fail();
    return Rf_ScalarLogical(TRUE);
}

SEXP fc_probe(SEXP pointer)
{
    farcall_session *session = address_of(pointer);
    return Rf_ScalarLogical(farcall_probe(*session) != FARCALL_RUNNING);
}

SEXP fc_cancel(SEXP pointer)
{
    farcall_session *session = address_of(pointer);
    return Rf_ScalarLogical(farcall_cancel(*session) == FARCALL_OK);
}

/* The status of the last error, once; that of a fault here for an error of R itself. */
SEXP fc_last_error(void)
{
    int status = last_status != 0 ? last_status : FARCALL_INTERNAL;
    last_status = 0;
    return Rf_ScalarInteger(status);
}

SEXP fc_times(SEXP pointer)
{
    farcall_session *session = address_of(pointer);
    farcall_times times = farcall_session_times(*session);
    double parts[] = {times.send, times.exec, times.recv, times.other, times.total};
    const char *names[] = {"send", "exec", "recv", "other", "total"};
    SEXP told = PROTECT(Rf_allocVector(REALSXP, 5));
    SEXP labels = PROTECT(Rf_allocVector(STRSXP, 5));
    for (int part = 0; part < 5; part++) {
        REAL(told)[part] = parts[part];
        SET_STRING_ELT(labels, part, Rf_mkChar(names[part]));
    }
    Rf_setAttrib(told, R_NamesSymbol, labels);
    UNPROTECT(2);
    return told;
}

static const R_CallMethodDef calls[] = {
    {"fc_connect", (DL_FUNC)&fc_connect, 2},
    {"fc_function", (DL_FUNC)&fc_function, 2},
    {"fc_object", (DL_FUNC)&fc_object, 2},
    {"fc_method", (DL_FUNC)&fc_method, 2},
    {"fc_interface", (DL_FUNC)&fc_interface, 1},
    {"fc_pack", (DL_FUNC)&fc_pack, 4},
    {"fc_pack_texts", (DL_FUNC)&fc_pack_texts, 2},
    {"fc_room", (DL_FUNC)&fc_room, 2},
    {"fc_unpack", (DL_FUNC)&fc_unpack, 2},
    {"fc_shape", (DL_FUNC)&fc_shape, 4},
    {"fc_start", (DL_FUNC)&fc_start, 3},
    {"fc_wait", (DL_FUNC)&fc_wait, 2},
    {"fc_probe", (DL_FUNC)&fc_probe, 1},
    {"fc_cancel", (DL_FUNC)&fc_cancel, 1},
    {"fc_last_error", (DL_FUNC)&fc_last_error, 0},
    {"fc_times", (DL_FUNC)&fc_times, 1},
    {NULL, NULL, 0},
};

void R_init_farcall(DllInfo *info)
{
    R_registerRoutines(info, NULL, calls, NULL, NULL);
    R_useDynamicSymbols(info, FALSE);
}
