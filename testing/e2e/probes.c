/* What a function may try in order to leave its walls. `run_probe` tries one thing and tells
 * whether it worked. Each attempt is harmless where it works. */

#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <mqueue.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef WITH_MPI
#include <mpi.h>
#endif

#define MIB (1024L * 1024)

static int number(const char *text) { return atoi(text); }

/* Whether a system call was let through, whatever it then said. */
static int let_through(long result)
{
    return result >= 0 || (errno != EPERM && errno != EACCES && errno != ENOSYS);
}

static int reads(const char *path)
{
    char byte;
    int file = open(path, O_RDONLY);
    int count = file < 0 ? -1 : (int)read(file, &byte, 1);
    if (file >= 0)
        close(file);
    return count > 0;
}

static int writes(const char *path)
{
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0644);
    if (file >= 0)
        close(file);
    return file >= 0;
}

static int is_set(const char *name) { return getenv(name) != NULL; }
static int lists(const char *path)
{
    DIR *folder = opendir(path);
    if (folder)
        closedir(folder);
    return folder != NULL;
}

static int reads_of(const char *pid, const char *what)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%s/%s", pid, what);
    return reads(path);
}
static int environ_of(const char *pid) { return reads_of(pid, "environ"); }
static int maps_of(const char *pid) { return reads_of(pid, "maps"); }
static int memory_of(const char *pid)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%s/mem", pid);
    int file = open(path, O_RDWR);
    return file >= 0 ? close(file), 1 : 0;
}
static int sees(const char *pid)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%s/cmdline", pid);
    return access(path, F_OK) == 0;
}
static int root_of(const char *pid)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%s/root/etc/passwd", pid);
    return reads(path);
}

static int by_symlink(const char *path)
{
    char link[256];
    snprintf(link, sizeof link, "%s/link-%d", getenv("TMPDIR"), getpid());
    return symlink(path, link) == 0 && reads(link);
}
static int by_hard_link(const char *path)
{
    char link_path[256];
    snprintf(link_path, sizeof link_path, "%s/hard-%d", getenv("TMPDIR"), getpid());
    return link(path, link_path) == 0;
}
static int by_parent(const char *path)
{
    char up[512] = "../../../../../../../../..";
    strncat(up, path, sizeof up - strlen(up) - 1);
    return reads(up);
}
static int by_handle(const char *path)
{
    struct { struct file_handle head; char bytes[128]; } handle = {{128, 0}, {0}};
    int mount;
    return name_to_handle_at(AT_FDCWD, path, &handle.head, &mount, 0) == 0
        && open_by_handle_at(AT_FDCWD, &handle.head, O_RDONLY) >= 0;
}

static int queue(const char *name)
{
    struct mq_attr attributes = {0, 1, 16, 0, {0}};
    mqd_t queue = mq_open(name, O_CREAT | O_RDWR, 0666, &attributes);
    return queue != (mqd_t)-1 && access("/dev/mqueue/farcall-probe", F_OK) == 0;
}

static int signals(const char *pid) { return kill(number(pid), 0) == 0; }
static int traces(const char *pid) { return ptrace(PTRACE_ATTACH, number(pid), 0, 0) == 0; }
static int reads_memory(const char *pid)
{
    char byte;
    struct iovec here = {&byte, 1}, there = {(void *)0x400000, 1};
    return process_vm_readv(number(pid), &here, 1, &there, 1, 0) >= 0;
}
static int opens_process(const char *pid) { return syscall(SYS_pidfd_open, number(pid), 0) >= 0; }
static int slows(const char *pid) { return setpriority(PRIO_PROCESS, number(pid), 19) == 0; }
static int binds_to_core(const char *pid)
{
    cpu_set_t cores;
    return sched_getaffinity(number(pid), sizeof cores, &cores) == 0
        && sched_setaffinity(number(pid), sizeof cores, &cores) == 0;
}

/* A child in a session of its own sleeps under a name that the test looks for. */
static int leaves_child(const char *name)
{
    pid_t child = fork();
    if (child == 0) {
        setsid();
        if (fork() == 0) {
            prctl(PR_SET_NAME, name);
            for (int i = 0; i < 600; i++)
                usleep(100000);
        }
        _exit(0);
    }
    waitpid(child, NULL, 0);
    return 0;
}
static int forks(const char *count)
{
    int made = 0, most = number(count);
    for (; made < most; made++) {
        pid_t child = fork();
        if (child < 0)
            break;
        if (child == 0) {
            pause();
            _exit(0);
        }
    }
    return made == most;
}

static int fills(char *memory, long bytes)
{
    for (long at = 0; at < bytes; at += 4096)
        memory[at] = 1;
    return 1;
}
static int system_v(const char *key)
{
    int id = shmget(number(key), 4096, IPC_CREAT | 0666);
    return id >= 0;
}
static int system_v_memory(const char *mib)
{
    long bytes = number(mib) * MIB / 4;
    for (int i = 0; i < 4; i++) {
        int id = shmget(IPC_PRIVATE, bytes, IPC_CREAT | 0600);
        char *memory = id < 0 ? (char *)-1 : shmat(id, NULL, 0);
        if (memory == (char *)-1)
            return 0;
        fills(memory, bytes);
    }
    return 1;
}
static int segments(const char *mib)
{
    char name[64];
    long bytes = number(mib) * MIB / 4;
    for (int i = 0; i < 4; i++) {
        snprintf(name, sizeof name, "/farcall-probe-%d-%d", getpid(), i);
        int file = shm_open(name, O_CREAT | O_RDWR, 0600);
        if (file < 0 || posix_fallocate(file, 0, bytes) != 0)
            return 0;
    }
    return 1;
}
static int memory_files(const char *mib)
{
    long bytes = number(mib) * MIB / 32;
    for (int i = 0; i < 32; i++) {
        int file = memfd_create("probe", 0);
        if (file < 0 || posix_fallocate(file, 0, bytes) != 0)
            return 0;
    }
    return 1;
}
static int maps(const char *mib, int kind)
{
    long bytes = number(mib) * MIB;
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS, -1, 0);
    return memory != MAP_FAILED && fills(memory, bytes);
}
static int shared_memory(const char *mib) { return maps(mib, MAP_SHARED); }
static int private_memory(const char *mib) { return maps(mib, MAP_PRIVATE); }
static int memory_of_children(const char *mib)
{
    /* A pipe for each child: it closes when the child is killed. */
    int pipes[8][2], full = 0;
    char byte = 1;
    for (int i = 0; i < 8; i++) {
        if (pipe(pipes[i]) < 0)
            return 0;
        if (fork() == 0) {
            char part[16];
            snprintf(part, sizeof part, "%d", number(mib) / 8);
            if (private_memory(part) && write(pipes[i][1], &byte, 1) == 1)
                pause();
            _exit(0);
        }
        close(pipes[i][1]);
    }
    for (int i = 0; i < 8; i++)
        full += read(pipes[i][0], &byte, 1) == 1;
    return full == 8;
}

static int one_file(const char *folder, int number_of, long bytes, int is_removed)
{
    char path[512];
    static char block[1 << 20];
    snprintf(path, sizeof path, "%s/probe-%d-%d", folder, getpid(), number_of);
    int file = open(path, O_CREAT | O_WRONLY, 0600);
    if (file < 0)
        return 0;
    if (is_removed)
        unlink(path);
    for (long done = 0; done < bytes; done += sizeof block)
        if (write(file, block, sizeof block) != (ssize_t)sizeof block)
            return 0;
    /* A removed file keeps its bytes while it is open. */
    if (!is_removed)
        close(file);
    return 1;
}
static int files(const char *folder, int is_removed)
{
    signal(SIGXFSZ, SIG_IGN);
    for (int i = 0; i < 10; i++)
        if (!one_file(folder, i, 40 * MIB, is_removed))
            return 0;
    return 1;
}
static int many_files(const char *folder) { return files(folder, 0); }
static int removed_files(const char *folder) { return files(folder, 1); }
static int own_files(const char *unused) { (void)unused; return files(getenv("TMPDIR"), 0); }
static int large_file(const char *folder)
{
    signal(SIGXFSZ, SIG_IGN);
    return one_file(folder, 99, 400 * MIB, 0);
}

static int has_socket(int family, int kind) { return socket(family, kind, 0) >= 0; }
static int inet(const char *unused) { (void)unused; return has_socket(AF_INET, SOCK_STREAM); }
static int inet6(const char *unused) { (void)unused; return has_socket(AF_INET6, SOCK_DGRAM); }
static int unix_socket(const char *unused)
{
    (void)unused;
    return has_socket(AF_UNIX, SOCK_STREAM);
}
static int netlink(const char *unused) { (void)unused; return has_socket(AF_NETLINK, SOCK_RAW); }
static int packet(const char *unused) { (void)unused; return has_socket(AF_PACKET, SOCK_RAW); }
static int raw(const char *unused) { (void)unused; return socket(AF_INET, SOCK_RAW, 1) >= 0; }
static int connects(const char *port)
{
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(number(port))};
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    int stream = socket(AF_INET, SOCK_STREAM, 0);
    return stream >= 0 && connect(stream, (struct sockaddr *)&address, sizeof address) == 0;
}
static int connects_abstract(const char *name)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    size_t length = strlen(name);
    memcpy(address.sun_path + 1, name, length);
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    return stream >= 0
        && connect(stream, (struct sockaddr *)&address,
                   offsetof(struct sockaddr_un, sun_path) + 1 + length) == 0;
}
static int connects_unix(const char *path)
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    strncpy(address.sun_path, path, sizeof address.sun_path - 1);
    int stream = socket(AF_UNIX, SOCK_STREAM, 0);
    return stream >= 0 && connect(stream, (struct sockaddr *)&address, sizeof address) == 0;
}

static int becomes_root(const char *unused) { (void)unused; return setuid(0) == 0; }
static int becomes_group(const char *unused) { (void)unused; return setgid(0) == 0; }
static int is_root(const char *unused) { (void)unused; return geteuid() == 0; }
static int unshares(const char *unused) { (void)unused; return unshare(CLONE_NEWUSER) == 0; }
static int clones(const char *unused)
{
    (void)unused;
    long child = syscall(SYS_clone, CLONE_NEWUSER | SIGCHLD, 0, 0, 0, 0);
    if (child == 0)
        _exit(0);
    return child > 0;
}
static int clones_new(const char *unused)
{
    struct { unsigned long long words[8]; } arguments = {{CLONE_NEWUSER, 0, 0, 0, SIGCHLD}};
    (void)unused;
    long child = syscall(SYS_clone3, &arguments, sizeof arguments);
    if (child == 0)
        _exit(0);
    return child > 0;
}
static int mounts(const char *unused)
{
    (void)unused;
    return mount("tmpfs", "/tmp", "tmpfs", 0, "") == 0;
}
static int uncovers(const char *path) { return umount2(path, MNT_DETACH) == 0; }
static int changes_root(const char *unused) { (void)unused; return chroot("/") == 0; }
static int enters(const char *pid)
{
    char path[128];
    snprintf(path, sizeof path, "/proc/%s/ns/mnt", pid);
    int file = open(path, O_RDONLY);
    return file >= 0 && setns(file, 0) == 0;
}
static int rings(const char *unused)
{
    char parameters[256] = {0};
    (void)unused;
    return syscall(SYS_io_uring_setup, 1, parameters) >= 0;
}
static int loads_bpf(const char *unused)
{
    (void)unused;
    return let_through(syscall(SYS_bpf, 0, NULL, 0));
}
static int faults(const char *unused)
{
    (void)unused;
    return let_through(syscall(SYS_userfaultfd, 0));
}
static int counts(const char *unused)
{
    char attributes[128] = {0};
    (void)unused;
    return let_through(syscall(SYS_perf_event_open, attributes, 0, -1, -1, 0));
}
static int keys(const char *unused)
{
    (void)unused;
    return let_through(syscall(SYS_add_key, "user", "farcall", "x", 1, -4));
}
static int modules(const char *unused)
{
    (void)unused;
    return let_through(syscall(SYS_init_module, "", 0, ""));
}
static int swaps(const char *unused)
{
    (void)unused;
    return let_through(syscall(SYS_swapon, "/none", 0));
}
static int sets_clock(const char *unused)
{
    struct timespec now;
    (void)unused;
    clock_gettime(CLOCK_REALTIME, &now);
    return clock_settime(CLOCK_REALTIME, &now) == 0;
}
static int names_host(const char *unused)
{
    char name[256];
    (void)unused;
    return gethostname(name, sizeof name) == 0 && sethostname(name, strlen(name)) == 0;
}
static int makes_device(const char *unused)
{
    char path[256];
    (void)unused;
    snprintf(path, sizeof path, "%s/device-%d", getenv("TMPDIR"), getpid());
    return mknod(path, S_IFBLK | 0600, makedev(254, 0)) == 0;
}
static int sets_oom(const char *unused)
{
    (void)unused;
    int file = open("/proc/self/oom_score_adj", O_WRONLY);
    return file >= 0 && write(file, "-1000", 5) == 5;
}
static int raises(int what)
{
    struct rlimit limit;
    getrlimit(what, &limit);
    if (limit.rlim_max == RLIM_INFINITY)
        return 0;
    limit.rlim_cur = limit.rlim_max = limit.rlim_max * 2 + 4096;
    return setrlimit(what, &limit) == 0;
}
static int raises_memory(const char *unused) { (void)unused; return raises(RLIMIT_DATA); }
static int raises_files(const char *unused) { (void)unused; return raises(RLIMIT_FSIZE); }
static int dumps(const char *unused) { (void)unused; return raises(RLIMIT_CORE); }
static int reads_log(const char *unused)
{
    char text[64];
    (void)unused;
    return syscall(SYS_syslog, 3, text, sizeof text) >= 0;
}

/* Reads what is typed at the terminal of the server, or types there. */
static int opens_terminal(const char *unused)
{
    (void)unused;
    return open("/dev/tty", O_RDWR) >= 0;
}
/* The terminals of others, such as those of the server's user. */
static int opens_terminals(const char *folder)
{
    char path[512];
    int found = 0;
    DIR *entries = opendir(folder);
    for (struct dirent *entry; entries && (entry = readdir(entries));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (number(entry->d_name) > 0 || entry->d_name[0] == '0')
            found |= open(path, O_RDONLY | O_NOCTTY | O_NONBLOCK) >= 0;
    }
    if (entries)
        closedir(entries);
    return found;
}

static const struct { const char *name; int (*run)(const char *); } PROBES[] = {
    {"variable_token", is_set}, {"variable_key", is_set}, {"variable_cloud", is_set},
    {"environ_of_server", environ_of}, {"environ_of_keeper", environ_of},
    {"maps_of_server", maps_of}, {"memory_of_server", memory_of},
    {"sees_server", sees}, {"root_of_keeper", root_of},
    {"reads_tokens", reads}, {"reads_server_key", reads}, {"reads_authority_key", reads},
    {"reads_own_key", reads}, {"lists_state", lists}, {"reads_audit", reads},
    {"reads_shadow", reads}, {"reads_tmp_of_others", reads}, {"lists_root", lists},
    {"reads_by_symlink", by_symlink}, {"reads_by_hard_link", by_hard_link},
    {"reads_by_parent", by_parent}, {"reads_by_handle", by_handle},
    {"reads_disk", reads}, {"reads_kernel_memory", reads}, {"reads_kernel_log", reads_log},
    {"writes_beside_interface", writes}, {"writes_etc", writes}, {"writes_audit", writes},
    {"writes_core_pattern", writes}, {"writes_memory_limit", writes}, {"message_queue", queue},
    {"signals_server", signals}, {"traces_server", traces},
    {"reads_memory_of_server", reads_memory}, {"opens_server", opens_process},
    {"slows_server", slows}, {"binds_server", binds_to_core},
    {"leaves_child", leaves_child}, {"forks", forks},
    {"system_v", system_v}, {"system_v_memory", system_v_memory}, {"segments", segments},
    {"memory_files", memory_files}, {"shared_memory", shared_memory},
    {"private_memory", private_memory}, {"memory_of_children", memory_of_children},
    {"many_files", many_files}, {"many_own_files", own_files}, {"removed_files", removed_files},
    {"large_file", large_file},
    {"socket_inet", inet}, {"socket_inet6", inet6}, {"socket_unix", unix_socket},
    {"socket_netlink", netlink}, {"socket_packet", packet}, {"socket_raw", raw},
    {"connects_server", connects}, {"connects_abstract", connects_abstract},
    {"connects_unix", connects_unix},
    {"is_root", is_root}, {"becomes_root", becomes_root}, {"becomes_group", becomes_group},
    {"unshares", unshares}, {"clones", clones}, {"clones_new", clones_new}, {"mounts", mounts},
    {"uncovers", uncovers}, {"changes_root", changes_root}, {"enters_server", enters},
    {"io_uring", rings}, {"bpf", loads_bpf}, {"userfaultfd", faults}, {"perf", counts},
    {"keyring", keys}, {"loads_module", modules}, {"swaps", swaps}, {"sets_clock", sets_clock},
    {"names_host", names_host}, {"makes_device", makes_device}, {"sets_oom_score", sets_oom},
    {"raises_memory_limit", raises_memory}, {"raises_file_limit", raises_files}, {"dumps", dumps},
    {"opens_terminal", opens_terminal}, {"opens_terminals", opens_terminals},
};

/* `escaped` becomes 1 if the attempt worked, 0 if it did not, and -1 for an unknown name. */
void run_probe(const char *name, const char *argument, int *escaped)
{
#ifdef WITH_MPI
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (rank != 0)
        return;
#endif
    *escaped = -1;
    for (size_t i = 0; i < sizeof PROBES / sizeof *PROBES; i++)
        if (strcmp(PROBES[i].name, name) == 0)
            *escaped = PROBES[i].run(argument);
}
