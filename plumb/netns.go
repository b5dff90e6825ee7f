package plumb

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/ipamd/ipamd/internal/nsthread"
)

// MakeNetns makes a network namespace that a file of this path stands for. A file
// that is there is [fs.ErrExist]: it may be another program's.
func MakeNetns(path string) (err error) {
	defer func() {
		if err != nil {
			err = fmt.Errorf("make network namespace %s: %w", path, err)
		}
	}()
	// On a machine where no namespace was made since it booted there is no folder either.
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	if err := shared(filepath.Dir(path)); err != nil {
		return err
	}
	f, err := os.OpenFile(path, os.O_RDONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_ = f.Close()
	step("netns file")
	err = nsthread.InNew(func() error {
		return unix.Mount(fmt.Sprintf("/proc/self/task/%d/ns/net", unix.Gettid()), path, "", unix.MS_BIND, "")
	})
	if err != nil {
		return errors.Join(err, os.Remove(path))
	}
	step("netns")
	return nil
}

// shared has what is mounted in a folder be seen by every mount namespace that has the folder, as
// iproute2 does with its own before it makes the first namespace: it mounts the folder upon itself.
// Where iproute2 does it later, and the file system is not shared, what was mounted before stays
// below, where no name leads to it, and such a namespace can never be removed.
func shared(folder string) error {
	f, err := os.Open(folder)
	if err != nil {
		return err
	}
	defer f.Close()
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil { // as iproute2: two at once would mount it twice
		return fmt.Errorf("lock %s: %w", folder, err)
	}
	var st unix.Statx_t
	if err := unix.Statx(unix.AT_FDCWD, folder, 0, 0, &st); err != nil {
		return fmt.Errorf("look at %s: %w", folder, err)
	}
	if st.Attributes&unix.STATX_ATTR_MOUNT_ROOT != 0 {
		return nil
	}
	err = unix.Mount(folder, folder, "", unix.MS_BIND|unix.MS_REC, "")
	if err == nil {
		err = unix.Mount("", folder, "", unix.MS_SHARED|unix.MS_REC, "")
	}
	if err != nil {
		return fmt.Errorf("mount %s upon itself: %w", folder, err)
	}
	return nil
}

// RemoveNetns takes away the file that stands for a network namespace. The kernel
// ends the namespace, and links in it, some time after its last user. What is not
// there, or half made, is no error.
func RemoveNetns(path string) error {
	err := unix.Unmount(path, unix.MNT_DETACH|unix.UMOUNT_NOFOLLOW)
	if err == nil || errors.Is(err, unix.EINVAL) { // EINVAL: a file that nothing was mounted on
		err = os.Remove(path)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove network namespace %s: %w", path, err)
	}
	return nil
}

// openNetns opens the network namespace at a path, which is not the caller's own: a
// sandbox's address and default route in the host's namespace would cut it off.
func openNetns(path string) (ns netns.NsHandle, inode uint64, err error) {
	refuse := func(why string, cause error) (netns.NsHandle, uint64, error) {
		return netns.None(), 0, &FieldError{Field: "netns", Value: path, Why: why, Err: cause}
	}
	// Neither a pipe nor a device is waited for.
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENOTDIR):
		return refuse("", ErrMissing)
	case err != nil:
		return refuse(err.Error(), ErrInvalid)
	}
	ns = netns.NsHandle(fd)
	if is, err := nsthread.IsNetns(fd); err != nil || !is {
		_ = ns.Close()
		return refuse("it is no network namespace", ErrInvalid)
	}
	own, err := nsthread.IsOwn(fd)
	if err != nil {
		_ = ns.Close()
		return netns.None(), 0, err
	}
	if own {
		_ = ns.Close()
		return refuse("it is the network namespace of the bridge", ErrInvalid)
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		_ = ns.Close()
		return netns.None(), 0, fmt.Errorf("look at network namespace %s: %w", path, err)
	}
	return ns, st.Ino, nil
}
