/*
 * host.c
 *	  What this machine and this data directory are called.
 *
 * Nothing here raises an error; all may be called in any process of a server.
 */
#include "postgres.h"

#include <fcntl.h>
#include <ifaddrs.h>
#ifdef __linux__
#include <linux/if_packet.h>
#endif
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "storage/fd.h"

#include "host.h"

#define MAC_BYTES		6
#define BOOT_ID_FILE	"/proc/sys/kernel/random/boot_id"
#define BOOT_ID_SIZE	64
/* Of the files of a data directory, one that is written in place for ever, and one never. */
#define LASTING_FILE	"global/pg_control"
#define CONSTANT_FILE	"PG_VERSION"

/* The host name.  What is not printable ASCII could not be stored in every database. */
void
snowflake_host_name(char name[SNOWFLAKE_HOST_NAME_SIZE])
{
	memset(name, 0, SNOWFLAKE_HOST_NAME_SIZE);
	if (gethostname(name, SNOWFLAKE_HOST_NAME_SIZE - 1) != 0)
		strlcpy(name, "unknown", SNOWFLAKE_HOST_NAME_SIZE);
	for (char *p = name; *p != '\0'; p++)
		if (*p < ' ' || *p > '~')
			*p = '?';
}

/*
 * The address of the first network interface that has one, but for the
 * loopback; false if there is none.
 */
bool
snowflake_host_mac(uint64 *mac)
{
	int			first = 0;

	*mac = 0;
#ifdef __linux__
	{
		struct ifaddrs *all;

		if (getifaddrs(&all) != 0)
			return false;
		for (struct ifaddrs *i = all; i != NULL; i = i->ifa_next)
		{
			const struct sockaddr_ll *link = (const struct sockaddr_ll *) i->ifa_addr;
			uint64		value = 0;

			if (link == NULL || link->sll_family != AF_PACKET || link->sll_halen != MAC_BYTES)
				continue;
			for (int byte = 0; byte < MAC_BYTES; byte++)
				value = value << 8 | link->sll_addr[byte];
			if (value == 0 || (first != 0 && link->sll_ifindex > first))
				continue;
			first = link->sll_ifindex;
			*mac = value;
		}
		freeifaddrs(all);
	}
#endif
	return first != 0;
}

/* The kernel's name for this run of the machine; empty if it has none. */
static void
read_boot_id(char id[BOOT_ID_SIZE])
{
	int			fd = BasicOpenFile(BOOT_ID_FILE, O_RDONLY);

	memset(id, 0, BOOT_ID_SIZE);
	if (fd < 0)
		return;
	if (read(fd, id, BOOT_ID_SIZE - 1) < 0)
		id[0] = '\0';
	close(fd);
}

/*
 * Tells this data directory on this machine from every copy that can be in use
 * at the same time: the run of the machine, host name, port, the place of a file
 * that is never replaced, and the last change of one that never changes.  The
 * same as at the last start after a crash; another one after a reboot, a move or a
 * restore.  Never 0.
 */
uint64
snowflake_host_fingerprint(void)
{
	struct
	{
		char		boot_id[BOOT_ID_SIZE];
		char		host[SNOWFLAKE_HOST_NAME_SIZE];
		uint64		port;
		uint64		device;
		uint64		inode;
		int64		changed;
		int64		changed_ns;
	}			parts;
	struct stat file;

	memset(&parts, 0, sizeof(parts));
	read_boot_id(parts.boot_id);
	snowflake_host_name(parts.host);
	parts.port = (uint64) PostPortNumber;
	if (stat(LASTING_FILE, &file) == 0)
	{
		parts.device = (uint64) file.st_dev;
		parts.inode = (uint64) file.st_ino;
	}
	if (stat(CONSTANT_FILE, &file) == 0)
	{
		parts.changed = (int64) file.st_ctim.tv_sec;
		parts.changed_ns = (int64) file.st_ctim.tv_nsec;
	}
	return hash_bytes_extended((const unsigned char *) &parts, sizeof(parts), 0) | 1;
}
