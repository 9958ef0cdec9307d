# Functions of servers as functions of R. `src/farcall.c` packs arguments and makes the calls.

# Kinds and types of arguments, as in farcall.h.
.array <- 0L
.text <- 9L
.callback <- 10L
.texts <- 11L
# Added to the kinds of integers without a sign.
.unsigned <- 256L

# What failed, by status from 1 on.
.statuses <- c("argument", "unknown_function", "connection", "timeout", "library", "server",
    "internal", "running", "cancelled", "unknown_session")

farcall_connect <- function(address = NULL, timeout = 0) {
    if (!is.null(address) && !.is_text(address))
        .stop("farcall_argument", paste0("`address` must be one text, such as ",
            "\"farcall://host:3717\" or \"ssh://host\""))
    server <- .guarded(.Call(fc_connect, address, as.double(timeout)))
    structure(list(pointer = server, address = address), class = "farcall_server")
}

farcall_function <- function(server, name) {
    .check_server(server)
    .check_name(name)
    .as_function(.guarded(.Call(fc_function, server$pointer, name)))
}

# Names with a dot: R takes an argument `n` of the function for the beginning of `name`.
farcall_call <- function(.server, .name, ...) farcall_function(.server, .name)(...)

farcall_new <- function(server, class) {
    .check_server(server)
    .check_name(class)
    object <- .guarded(.Call(fc_object, server$pointer, class))
    structure(list(pointer = object, class = class), class = "farcall_object")
}

farcall_method <- function(object, name) {
    if (!inherits(object, "farcall_object"))
        .stop("farcall_argument", "`object` must be an object of a server, from farcall_new()")
    .check_name(name)
    .as_function(.guarded(.Call(fc_method, unclass(object)$pointer, name)))
}

`$.farcall_server` <- function(x, name) {
    own <- unclass(x)
    if (name %in% names(own)) own[[name]] else farcall_function(x, name)
}

`$.farcall_object` <- function(x, name) farcall_method(x, name)

farcall_start <- function(.f, ...) {
    if (!inherits(.f, "farcall_function"))
        .stop("farcall_argument",
            "the first argument must be a function of a server, from farcall_function()")
    attr(.f, "start")(...)
}

farcall_result <- function(session, timeout = Inf) {
    .check_session(session)
    state <- session$state
    end <- proc.time()[["elapsed"]] + timeout
    while (!state$ended) {
        left <- end - proc.time()[["elapsed"]]
        # In short waits, so that R notices that its user interrupts it.
        state$ended <- .guarded(.Call(fc_wait, session$pointer, max(0, min(left, 0.1))))
        if (!state$ended && left <= 0)
            .stop("farcall_timeout", sprintf("the call has not ended within %g s", timeout))
    }
    if (is.null(state$result))
        state$result <- session$unpack()
    state$result
}

farcall_done <- function(session) {
    .check_session(session)
    session$state$ended || .Call(fc_probe, session$pointer)
}

farcall_cancel <- function(session) {
    .check_session(session)
    invisible(.Call(fc_cancel, session$pointer))
}

farcall_times <- function(session) {
    .check_session(session)
    .Call(fc_times, session$pointer)
}

print.farcall_server <- function(x, ...) {
    address <- unclass(x)$address
    cat("<farcall server at ", if (is.null(address)) "the usual address" else address, ">\n", sep = "")
    invisible(x)
}

print.farcall_object <- function(x, ...) {
    cat("<farcall object ", unclass(x)$class, ">\n", sep = "")
    invisible(x)
}

print.farcall_function <- function(x, ...) {
    cat(attr(x, "interface")$text, "\n", sep = "")
    invisible(x)
}

print.farcall_session <- function(x, ...) {
    cat("<call of ", x$name, if (farcall_done(x)) ", has ended" else "", ">\n", sep = "")
    invisible(x)
}

.check_server <- function(server) {
    if (!inherits(server, "farcall_server"))
        .stop("farcall_argument", "`server` must be a connection, from farcall_connect()")
}

.is_text <- function(value) is.character(value) && length(value) == 1 && !is.na(value)

.check_name <- function(name) {
    if (!.is_text(name))
        .stop("farcall_argument", "the name of a function or a class must be one text")
}

.check_session <- function(session) {
    if (!inherits(session, "farcall_session"))
        .stop("farcall_argument", "`session` must be a call in progress, from farcall_start()")
}

# An error whose class says whose fault it was: farcall_argument, farcall_connection, ...
.stop <- function(class, message) {
    classes <- c(class, "farcall_error", "error", "condition")
    stop(structure(class = classes, list(message = message, call = NULL)))
}

# Errors of the library. `class` is that of errors of this package; otherwise the library knows it.
.guarded <- function(expression, class = NULL) {
    tryCatch(expression, simpleError = function(error) {
        if (is.null(class))
            class <- paste0("farcall_", .statuses[.Call(fc_last_error)])
        .stop(class, conditionMessage(error))
    })
}

# A function of R with the arguments of the interface. Those that a call only writes are results.
.as_function <- function(pointer) {
    interface <- .Call(fc_interface, pointer)
    is_wanted <- interface$read | interface$kind %in% c(.callback, .text)
    wanted <- interface$arguments[is_wanted]
    start <- function(...) .begin(pointer, interface, .match(list(...), wanted, interface$name))
    f <- function(...) {
        session <- start(...)
        # Of a call that has ended, this changes nothing.
        on.exit(.Call(fc_cancel, session$pointer))
        farcall_result(session)
    }
    structure(f, class = c("farcall_function", "function"), interface = interface, start = start)
}

# The arguments by name, given by place or by name.
.match <- function(given, wanted, name) {
    labels <- names(given)
    if (is.null(labels))
        labels <- rep("", length(given))
    unknown <- setdiff(labels[labels != ""], wanted)
    if (length(unknown) > 0)
        .stop("farcall_argument", sprintf("%s has no argument `%s` that a call passes; it has %s", name,
            unknown[1], paste(wanted, collapse = ", ")))
    twice <- labels[labels != "" & duplicated(labels)]
    if (length(twice) > 0)
        .stop("farcall_argument", sprintf("%s: argument `%s` is given twice", name, twice[1]))
    free <- setdiff(wanted, labels)
    if (sum(labels == "") != length(free))
        .stop("farcall_argument", sprintf("%s takes %d arguments (%s), not %d", name, length(wanted),
            paste(wanted, collapse = ", "), length(given)))
    labels[labels == ""] <- free
    names(given) <- labels
    given
}

.begin <- function(pointer, interface, given) {
    names <- interface$arguments
    slots <- vector("list", length(names))
    if (any(interface$kind == .callback))
        .stop("farcall_argument", paste0(interface$name, " takes a function, which R cannot pass yet"))
    # A data frame is a list of columns, also where its dimensions are right.
    frames <- names(given)[vapply(given, is.data.frame, TRUE)]
    if (length(frames) > 0)
        .stop("farcall_argument", sprintf("%s: argument `%s` is a data frame; pass as.matrix() of it",
            interface$name, frames[1]))
    types <- ifelse(interface$kind == .array, interface$type, interface$kind)
    is_array <- interface$kind == .array
    has_texts <- is_array & interface$type == .text
    types[has_texts & interface$written] <- .texts
    # The library reads texts in UTF-8.
    given <- lapply(given, function(value) if (is.character(value)) enc2utf8(value) else value)
    pack <- function(index, value) {
        written <- interface$written[index]
        .Call(fc_pack, value, types[index], written, names[index])
    }
    checked <- function(packed) .guarded(packed, "farcall_argument")
    for (index in which(!is_array))
        slots[[index]] <- checked(pack(index, .scalar(given[[names[index]]], interface, index)))
    # The library reads these texts when it reads the scalars, and their order when the call begins.
    is_read_text <- has_texts & !interface$written
    for (index in which(is_read_text)) {
        value <- given[[names[index]]]
        slots[[index]] <- checked(.Call(fc_pack_texts, value, names[index]))
    }
    shapes <- lapply(seq_along(names), function(index) {
        if (is_array[index]) .guarded(.Call(fc_shape, pointer, slots, types, index - 1L))
    })
    for (index in which(is_array)) {
        shape <- shapes[[index]]
        slots[[index]] <- if (interface$read[index]) {
            value <- .ordered(given[[names[index]]], shape, interface, index)
            given[[names[index]]] <- value
            if (is_read_text[index])
                checked(.Call(fc_pack_texts, value, names[index]))
            else
                checked(pack(index, value))
        } else {
            .Call(fc_room, types[index], prod(shape))
        }
    }
    # Texts are used where they are, so they must remain.
    attr(slots, "values") <- given
    session <- .guarded(.Call(fc_start, pointer, slots, types))
    unpack <- function() {
        results <- list()
        for (index in which(interface$written & is_array)) {
            value <- .Call(fc_unpack, slots[[index]], types[index])
            results[[names[index]]] <- .shaped(value, shapes[[index]], interface$column_major)
        }
        results
    }
    state <- new.env(parent = emptyenv())
    state$ended <- FALSE
    structure(list(pointer = session, name = interface$name, state = state, unpack = unpack),
        class = "farcall_session")
}

.scalar <- function(value, interface, index) {
    if (length(value) != 1)
        .stop("farcall_argument", sprintf("%s: argument `%s` must have one element, not %d",
            interface$name, interface$arguments[index], length(value)))
    if (is.character(value) && interface$kind[index] %% .unsigned == 1L)
        utf8ToInt(value)
    else
        value
}

# The elements in the order of the function. C functions take matrices by rows; a vector has the
# elements of a matrix by columns. Dimensions of length 1 do not matter.
.ordered <- function(value, shape, interface, index) {
    dims <- dim(value)
    if (length(dims) > 1 && !identical(as.double(dims[dims != 1]), shape[shape != 1]))
        .stop("farcall_argument", sprintf("%s: argument `%s` must be %s, not %s", interface$name,
            interface$arguments[index], paste(shape, collapse = " x "),
            paste(dims, collapse = " x ")))
    if (length(value) != prod(shape))
        .stop("farcall_argument", sprintf("%s: argument `%s` must have %.0f elements, not %d",
            interface$name, interface$arguments[index], prod(shape), length(value)))
    # Packing refuses these classes, which must not be lost here.
    if (length(shape) < 2 || interface$column_major || inherits(value, c("factor", "integer64")))
        value
    else
        aperm(array(value, shape))
}

.shaped <- function(value, shape, column_major) {
    if (length(shape) < 2) {
        attributes(value) <- NULL
        return(value)
    }
    if (column_major)
        array(value, shape)
    else
        aperm(array(value, rev(shape)))
}
