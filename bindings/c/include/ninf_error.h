/* The errors of Ninf, which ninf.h has. */
#ifndef FARCALL_NINF_ERROR_H
#define FARCALL_NINF_ERROR_H

#include "ninf.h"

#endif
