package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// A reply is what came back over HTTP.
type reply struct {
	status string // "404 Not Found"
	after  string // Retry-After; "" without one
	body   []byte
}

func (r *reply) refused() bool { return !strings.HasPrefix(r.status, "2") }

// exchange asks once, on a connection of its own, and reads the answer to its end.
//
// A runtime starts this program for each call, and waits for it. With net/http, TLS, its tables and
// its goroutines a call takes twice as long, of which nearly all is the start of the program and
// the wake-ups of its threads. So the call is made here, by the one thread there is: HTTP/1.0, the
// answer to which ends with the connection, whatever its length and encoding would have been.
//
// It ends by the deadline of ctx, and does not see a cancellation.
func exchange(ctx context.Context, socket, method, path string, body []byte) (*reply, error) {
	conn, err := dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	var ask bytes.Buffer
	fmt.Fprintf(&ask, "%s %s HTTP/1.0\r\nHost: ipamd\r\n", method, path)
	if body != nil {
		fmt.Fprintf(&ask, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	ask.WriteString("\r\n")
	ask.Write(body)
	// One that is refused for its head may be answered and closed before the body is written.
	_, unsent := conn.Write(ask.Bytes())
	all, err := io.ReadAll(conn)
	if len(all) == 0 && unsent != nil {
		return nil, unsent
	}
	if err != nil {
		return nil, err
	}
	return parse(all)
}

// A conn is a socket that blocks, up to the deadline of its context.
type conn struct {
	*os.File
	ctx context.Context
}

// dial waits while the socket's backlog is full: the daemon is there, and others came first.
func dial(ctx context.Context, socket string) (*conn, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open a unix socket: %w", err)
	}
	c := &conn{os.NewFile(uintptr(fd), socket), ctx}
	for err = unix.EINTR; err == unix.EINTR; {
		if err = c.wait(unix.SO_SNDTIMEO); err == nil {
			err = late(unix.Connect(fd, &unix.SockaddrUnix{Name: socket}))
		}
	}
	if err != nil {
		_ = c.Close()
		return nil, fmt.Errorf("connect to %s: %w", socket, err)
	}
	return c, nil
}

func (c *conn) Write(b []byte) (int, error) {
	if err := c.wait(unix.SO_SNDTIMEO); err != nil {
		return 0, err
	}
	n, err := c.File.Write(b)
	return n, late(err)
}

func (c *conn) Read(b []byte) (int, error) {
	if err := c.wait(unix.SO_RCVTIMEO); err != nil {
		return 0, err
	}
	n, err := c.File.Read(b)
	return n, late(err)
}

// wait has the next operation end by the deadline.
func (c *conn) wait(option int) error {
	end, has := c.ctx.Deadline()
	if !has {
		return nil
	}
	left := time.Until(end)
	if left < time.Microsecond { // zero is without end
		return context.DeadlineExceeded
	}
	t := unix.NsecToTimeval(left.Nanoseconds())
	return unix.SetsockoptTimeval(int(c.Fd()), unix.SOL_SOCKET, option, &t)
}

// late is the error of a socket whose time is over, in the words of contexts.
func late(err error) error {
	if errors.Is(err, unix.EAGAIN) {
		return context.DeadlineExceeded
	}
	return err
}

// parse reads a whole answer. One that says that it is longer than it is was cut short.
func parse(all []byte) (*reply, error) {
	head, body, whole := bytes.Cut(all, []byte("\r\n\r\n"))
	if !whole {
		return nil, io.ErrUnexpectedEOF
	}
	lines := strings.Split(string(head), "\r\n")
	version, status, _ := strings.Cut(lines[0], " ")
	if code, _, _ := strings.Cut(status, " "); !strings.HasPrefix(version, "HTTP/1.") || len(code) != 3 {
		return nil, fmt.Errorf("the answer begins with %.40q, and is none of HTTP", lines[0])
	}
	r := &reply{status: status, body: body}
	for _, line := range lines[1:] {
		name, value, _ := strings.Cut(line, ":")
		switch value = strings.TrimSpace(value); strings.ToLower(name) {
		case "retry-after":
			r.after = value
		case "content-length":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return nil, fmt.Errorf("the answer has the length %.40q", value)
			}
			if n > len(body) {
				return nil, io.ErrUnexpectedEOF
			}
			r.body = body[:n]
		case "transfer-encoding":
			return nil, fmt.Errorf("the answer is in the encoding %.40q, which was not asked for", value)
		}
	}
	return r, nil
}
