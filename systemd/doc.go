// Package systemd holds the units under which ipamd runs, and nothing that
// runs itself: a service and its socket, the group that may open it, and the
// folders. Its tests hold how far the service is closed, and follow its life in
// a small Debian that is booted with systemd as its first process.
package systemd
