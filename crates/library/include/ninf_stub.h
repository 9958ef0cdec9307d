/*
 * What interface files of Ninf include on the server. A body finds the standard headers without it.
 */
#ifndef FARCALL_NINF_STUB_H
#define FARCALL_NINF_STUB_H

enum { NINF_OK = 0, NINF_ERROR = -1 };

#endif
