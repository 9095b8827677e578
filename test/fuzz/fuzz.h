/*
 * fuzz.h
 *	  What the fuzz targets share: input, checks, and the server's functions that the
 *	  extension's files need, which server.c has.
 *
 * Each target is linked with the extension's own object files.  An ERROR comes back to the
 * call that fuzz_accepts() was around, and is kept in fuzz_error.
 */
#ifndef FUZZ_H
#define FUZZ_H

#include "postgres.h"

#include <setjmp.h>
#include <time.h>

/* The bytes that are still to be used; numbers are 0 when there are none left. */
typedef struct FuzzInput
{
	const uint8 *data;
	size_t		size;
} FuzzInput;

/* The ERROR that was raised last. */
typedef struct FuzzError
{
	int			sqlerrcode;
	char		message[1024];
	char		detail[1024];
	char		hint[1024];
} FuzzError;

extern FuzzError fuzz_error;
extern jmp_buf fuzz_error_handler;

/* The server encoding that messages are checked in and texts are cut in. */
extern int	fuzz_encoding;

/* The setting snowflake.layout, without preloading. */
extern const char *fuzz_layout_setting;

extern uint64 fuzz_take(FuzzInput *input, int bytes);
extern uint64 fuzz_take_up_to(FuzzInput *input, uint64 max);
extern char *fuzz_take_string(FuzzInput *input);

/* Bytes that were allocated with palloc since the last end of a statement. */
extern Size fuzz_allocated;

/* Frees all of it, as the end of a statement does. */
extern void fuzz_end_statement(void);

extern void fuzz_fail(const char *what, const char *file, int line) __attribute__((noreturn));
extern bool fuzz_check_error(const char *file, int line);

/* Ends the run if a property does not hold; libFuzzer keeps the input. */
#define fuzz_check(property) \
	((property) ? (void) 0 : fuzz_fail(#property, __FILE__, __LINE__))

/* Whether a statement raises no ERROR; if it does, the error must say enough. */
#define fuzz_accepts(statement) \
	(setjmp(fuzz_error_handler) == 0 ? ((void) (statement), true) : fuzz_check_error(__FILE__, __LINE__))

#define fuzz_refuses(statement, code) \
	fuzz_check(!fuzz_accepts(statement) && fuzz_error.sqlerrcode == (code))

extern int	LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

#endif							/* FUZZ_H */
