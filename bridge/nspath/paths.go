// Package nspath opens network namespaces at the paths that clients name, and no other file: a
// file system that hangs keeps the look, and not the caller.
package nspath

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nsthread"
)

// ErrRefused is a path at which no network namespace is looked for: root opens
// none of the files that a client may think of.
var ErrRefused = errors.New("is not where network namespaces are named")

var ofProcess = regexp.MustCompile(`^/proc/[1-9][0-9]*/ns/net$`)

// Named is where `ip netns`, CNI plugins and containerd keep names of network namespaces.
const Named = "/run/netns"

// mostLooks is how many looks into one folder may be under way at once. A file
// system that hangs keeps the thread that looks, and nothing can end that; looks
// into other folders go on.
const mostLooks = 16

// Paths opens network namespaces at paths that callers name. It is safe
// for concurrent use.
type Paths struct {
	folders map[string]chan struct{} // with a place for each look

	mu    sync.Mutex
	looks map[*look]bool // that are under way
}

// A look is at one path; it is given up when its context ends.
type look struct {
	ctx  context.Context
	path string
}

// New returns the paths in [Named], in the folders beside it, and those of processes.
func New(folders []string) *Paths {
	p := &Paths{folders: make(map[string]chan struct{}), looks: make(map[*look]bool)}
	for _, f := range append([]string{Named, processes}, folders...) {
		p.folders[inRun(f)] = make(chan struct{}, mostLooks)
	}
	return p
}

const processes = "/proc" // stands for /proc/PID/ns/net

// Check reports why a network namespace cannot be named by a path, as an
// [ErrRefused]: it has to be a file in [Named] or in one of the folders, or
// /proc/PID/ns/net, or a symbolic link there to such a
// path. One with nothing there, or that cannot be looked at before ctx ends, is right: what is
// refused is what could never be confirmed to be gone.
func (p *Paths) Check(ctx context.Context, path string) error {
	fd, err := p.Open(ctx, path)
	if fd >= 0 {
		_ = unix.Close(fd)
	}
	if errors.Is(err, ErrRefused) {
		return err
	}
	return nil
}

// inRun is a path with /run for /var/run, which is a link to it on every system that
// has both.
func inRun(path string) string {
	if rest, is := strings.CutPrefix(path, "/var/run/"); is {
		return "/run/" + rest
	}
	return path
}

// folder returns the path as it is opened, and the folder that it counts for.
func (p *Paths) folder(path string) (clean, folder string, err error) {
	clean = inRun(path)
	if ofProcess.MatchString(clean) {
		return clean, processes, nil
	}
	folder = filepath.Dir(clean)
	if _, known := p.folders[folder]; known && folder != processes && filepath.Clean(clean) == clean {
		return clean, folder, nil
	}
	var known []string
	for f := range p.folders {
		if f != processes {
			known = append(known, f)
		}
	}
	slices.Sort(known)
	return "", "", fmt.Errorf("%.200s %w: a file in %s, or /proc/PID/ns/net; another folder is added to bridge.netns in the configuration",
		path, ErrRefused, strings.Join(known, ", "))
}

// mostHops is how many symbolic links are followed, as many as the kernel follows.
const mostHops = 40

// Open opens the network namespace at a path; -1 when there is none. A symbolic link
// is followed by the same rules as the path itself, so that each file system counts
// for its own folder; one that leads elsewhere is an [ErrRefused].
func (p *Paths) Open(ctx context.Context, path string) (int, error) {
	at := path
	for range mostHops {
		clean, folder, err := p.folder(at)
		if err != nil && at != path {
			return -1, fmt.Errorf("%.200s is a symbolic link, remove it or let it name the namespace itself: %w", path, err)
		}
		if err != nil {
			return -1, err
		}
		fd, target, err := p.look(ctx, clean, folder)
		if target == "" {
			return fd, err
		}
		if at = target; !filepath.IsAbs(at) {
			at = filepath.Join(folder, at)
		}
	}
	return -1, nil
}

// look is [OpenNow] within ctx: a look that has not come back when it ends is given
// up, and until it does come back no other looks there.
func (p *Paths) look(ctx context.Context, path, folder string) (fd int, target string, err error) {
	if p.isStuck(path) {
		return -1, "", fmt.Errorf("open %s: an earlier look has not come back: its file system hangs", path)
	}
	looks := p.folders[folder]
	select {
	case looks <- struct{}{}:
	case <-ctx.Done():
		return -1, "", fmt.Errorf("open %s: %d earlier looks into %s have not come back: %w", path, mostLooks, folder, ctx.Err())
	}
	type opened struct {
		fd     int
		target string
		err    error
	}
	back := make(chan opened)
	mine := &look{ctx, path}
	p.mu.Lock()
	p.looks[mine] = true
	p.mu.Unlock()
	go func() { // nothing else returns from a system call that hangs; see mostLooks
		fd, target, err := OpenNow(path)
		<-looks
		p.mu.Lock()
		delete(p.looks, mine)
		p.mu.Unlock()
		select {
		case back <- opened{fd, target, err}:
		case <-ctx.Done():
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}()
	select {
	case o := <-back:
		return o.fd, o.target, o.err
	case <-ctx.Done():
		return -1, "", fmt.Errorf("open %s: the look has not come back: %w", path, ctx.Err())
	}
}

// isStuck reports that a look at a path was given up and has not come back.
func (p *Paths) isStuck(path string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.looks {
		if l.path == path && l.ctx.Err() != nil {
			return true
		}
	}
	return false
}

// OpenNow opens the network namespace at a path, whichever that is, and waits for its file system; -1 when there is none, and with it
// what a symbolic link there names.
//
// What is there is held without opening it, so that a device does nothing, a fifo
// is not waited for, and what is opened then is what was looked at. Its device shows
// whether it is a namespace: the kernel has that without asking the file system,
// which statfs would do. A link is followed in /proc only, where it is the
// namespace itself: where another one leads, the caller decides.
func OpenNow(path string) (fd int, target string, err error) {
	nofollow := unix.O_NOFOLLOW
	if ofProcess.MatchString(path) {
		nofollow = 0
	}
	held, err := unix.Open(path, unix.O_PATH|unix.O_CLOEXEC|nofollow, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR), errors.Is(err, unix.ESRCH), errors.Is(err, unix.ENAMETOOLONG):
		return -1, "", nil // ESRCH: of a process in /proc that ended; ENAMETOOLONG: no file can have that name
	case err != nil:
		return -1, "", err
	}
	defer unix.Close(held)
	var file, own unix.Statx_t
	const asKnown = unix.AT_EMPTY_PATH | unix.AT_STATX_DONT_SYNC
	if err := unix.Statx(held, "", asKnown, unix.STATX_TYPE, &file); err != nil {
		return -1, "", err
	}
	if err := unix.Statx(unix.AT_FDCWD, "/proc/self/ns/net", unix.AT_STATX_DONT_SYNC, unix.STATX_TYPE, &own); err != nil {
		return -1, "", err
	}
	if file.Mode&unix.S_IFMT == unix.S_IFLNK {
		buf := make([]byte, unix.PathMax)
		n, err := unix.Readlinkat(held, "", buf)
		return -1, string(buf[:max(n, 0)]), err
	}
	if file.Dev_major != own.Dev_major || file.Dev_minor != own.Dev_minor {
		return -1, "", nil
	}
	fd, err = unix.Open(fmt.Sprint("/proc/self/fd/", held), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", err
	}
	if is, err := nsthread.IsNetns(fd); err != nil || !is {
		_ = unix.Close(fd)
		return -1, "", err
	}
	return fd, "", nil
}

// Inode distinguishes namespaces. A file system that hangs is not asked.
func Inode(path string) (uint64, error) {
	var st unix.Statx_t
	err := unix.Statx(unix.AT_FDCWD, path, unix.AT_STATX_DONT_SYNC, unix.STATX_INO, &st)
	return st.Ino, err
}
