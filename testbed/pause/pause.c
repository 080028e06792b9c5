/* First process of every pod's sandbox: holds the namespaces and collects what ends in them. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void end(int number) {
	(void)number;
	_exit(0);
}

static void collect(int number) {
	(void)number;
	while (waitpid(-1, 0, WNOHANG) > 0) {
	}
}

int main(void) {
	signal(SIGTERM, end);
	signal(SIGINT, end);
	signal(SIGCHLD, collect);
	for (;;) {
		pause();
	}
}
