/*
 * test/arch/emulate.c
 *	  Takes the place of a program in a Debian of another architecture, and runs
 *	  that program in the emulator.
 *
 * The kernel cannot run the programs of another architecture, so one of them
 * cannot start the next, as initdb starts sh, and sh the server.  So PROGRAM is
 * renamed to PROGRAM.emulated, and a copy of this program, which is built for
 * the real machine and needs no library, takes its name.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

int
main(int argc, char **argv)
{
	/* the name that was executed; argv[0] may be another */
	const char *name = (const char *) getauxval(AT_EXECFN);
	char	   *program = malloc(strlen(name) + sizeof(".emulated"));
	char	  **arguments = calloc(argc + 4, sizeof(char *));

	if (program == NULL || arguments == NULL)
		return 127;
	sprintf(program, "%s.emulated", name);
	arguments[0] = "/emulator";
	arguments[1] = "-0";
	arguments[2] = argv[0];
	arguments[3] = program;
	for (int i = 1; i < argc; i++)
		arguments[i + 3] = argv[i];
	execv(arguments[0], arguments);
	perror(arguments[0]);
	return 127;
}
