# What needs no server: packing and unpacking keep every value, and refuse what would lose some.
library(farcall)

pack <- function(value, type, name = "x") {
    .Call(farcall:::fc_pack, value, type, TRUE, name)
}
unpack <- function(slot, type) .Call(farcall:::fc_unpack, slot, type)
fails <- function(expression, text) {
    said <- tryCatch({
        expression
        "nothing"
    }, error = conditionMessage)
    if (!grepl(text, said)) stop("expected ", text, ", got ", said)
}

# Types of farcall.h: char 1, short 2, int 3, long 4, float 5, double 6, scomplex 7, dcomplex 8.
whole <- c(-100, 0, 100)
for (type in c(2L, 3L, 4L, 5L, 6L)) stopifnot(unpack(pack(whole, type), type) == whole)
stopifnot(unpack(pack(2^53, 4L), 4L) == 2^53)
z <- c(1+2i, -3i)
for (type in c(7L, 8L)) stopifnot(unpack(pack(z, type), type) == z)
stopifnot(pack(as.raw(1:3), 1L) == as.raw(1:3), as.integer(pack(-1, 1L)) == 255)

# Integers without a sign are marked by 256.
unsigned <- list(c(1L, 255), c(2L, 65535), c(3L, 2^32 - 1), c(4L, 2^53))
for (case in unsigned) {
    type <- as.integer(case[1]) + 256L
    values <- c(0, 1, case[2])
    stopifnot(as.double(unpack(pack(values, type), type)) == values)
    fails(pack(-1, type), "not a whole number from 0")
    fails(pack(case[2] + if (type == 260L) 2 else 1, type), "not a whole number from 0")
}
# The least integer is no NA.
stopifnot(identical(unpack(pack(-2^31, 3L), 3L), -2^31), is.integer(unpack(pack(7, 3L), 3L)))
# A float holds no more than its digits and its range.
stopifnot(unpack(pack(c(0.5, Inf), 5L), 5L) == c(0.5, Inf), is.nan(unpack(pack(NaN, 5L), 5L)))
fails(pack(1e300, 5L), "too large for a float")
fails(pack(16777217L, 5L), "cannot hold 16777217 exactly")
fails(pack(1e300i, 7L), "too large for a float")
# The numbers in these are not their values.
fails(pack(factor("a"), 6L), "is a factor")
fails(pack(structure(1, class = "integer64"), 6L), "is an integer64")
fails(pack(NA_character_, 9L), "has an NA, which is no text")
fails(.Call(farcall:::fc_pack_texts, c("a", NA), "x"), "has an NA, which is no text")

fails(pack(1.5, 3L), "not a whole number")
fails(pack(2^31, 3L), "not a whole number from -2147483648 to 2147483647")
fails(pack(2^54, 4L), "not a whole number")
fails(pack(NaN, 3L), "not a whole number")
fails(pack(c(1L, NA), 3L), "has an NA")
fails(pack("a", 6L), "must be numeric, not character")
fails(pack(1, 9L), "must be a character vector")
fails(farcall_connect("http://host"), "not a server address")
fails(farcall_connect(c("a", "b")), "must be one text")

# A vector that a call only reads is not copied; one that it writes is.
x <- c(1, 2)
stopifnot(identical(.Call(farcall:::fc_pack, x, 6L, FALSE, "x"), x))
