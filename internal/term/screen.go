package term

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"

	"github.com/jedib0t/go-pretty/v6/text"
	"golang.org/x/term"
)

// What the keys of a raw terminal send.
const (
	CtrlC = 0x03
	CtrlZ = 0x1a
)

// What xterm and all that follow it understand (XTerm Control Sequences).
const (
	AlternateScreen = "\x1b[?1049h\x1b[?25l" // and no cursor
	OwnScreen       = "\x1b[?25h\x1b[?1049l"
	TopLeft         = "\x1b[H"
	endOfLine       = "\x1b[K"
	EndOfScreen     = "\x1b[0m\x1b[J"
)

// A Screen is the controlling terminal while top has it: raw, on its alternate
// screen, read by a goroutine of its own. close gives it back as it was and
// waits for that goroutine; so must every way out.
type Screen struct {
	tty           *os.File
	was           *term.State // before the first enter
	Keys          chan byte   // closed when the terminal is gone
	done          chan struct{}
	Columns, Rows int
	start         sync.Once // of the reader
	reader        sync.WaitGroup
}

// OpenScreen opens the controlling terminal and leaves it as it is. What is
// opened here is a file of its own, so that a deadline ends a read of it and
// the shell's standard input keeps its mode.
func OpenScreen() (*Screen, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("there is no controlling terminal: %w", err)
	}
	s := &Screen{tty: tty, Keys: make(chan byte), done: make(chan struct{})}
	s.Measure()
	return s, nil
}

// Enter takes the terminal; again is fine.
func (s *Screen) Enter() error {
	err := s.control(func(fd int) error {
		was, err := term.MakeRaw(fd)
		if s.was == nil {
			s.was = was
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("set the terminal: %w", err)
	}
	s.start.Do(func() { s.reader.Go(s.read) })
	_, err = s.tty.WriteString(AlternateScreen)
	return err
}

// Leave gives the terminal back for now.
func (s *Screen) Leave() error {
	if s.was == nil {
		return nil
	}
	_, err := s.tty.WriteString(OwnScreen)
	return errors.Join(err, s.control(func(fd int) error { return term.Restore(fd, s.was) }))
}

// Close gives the terminal back for good. One that is gone cannot be given.
func (s *Screen) Close() {
	_ = s.Leave()
	close(s.done)
	_ = s.tty.Close() // ends the reader
	s.reader.Wait()
}

// Suspend gives the terminal back and stops the process as Ctrl-Z does, until
// continued says that it goes on. The kernel stops a process a moment after
// the call that asks for it; who took the terminal in that moment would leave
// a raw one to the shell. Process 1 of a container cannot be stopped.
func (s *Screen) Suspend(continued func()) error {
	if syscall.Getpid() == 1 {
		return nil
	}
	if err := s.Leave(); err != nil {
		return err
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	continued()
	s.Measure()
	return s.Enter()
}

// Draw writes a screen at once, each line cut to the terminal's width, so that
// nothing flickers and nothing wraps.
func (s *Screen) Draw(lines []string) error {
	var b bytes.Buffer
	b.WriteString(TopLeft)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(text.Trim(line, s.Columns))
		b.WriteString(endOfLine)
	}
	b.WriteString(EndOfScreen)
	_, err := s.tty.Write(b.Bytes())
	return err
}

// Measure reads how big the terminal is; one that does not say is 80 by 24.
func (s *Screen) Measure() {
	s.Columns, s.Rows = 80, 24
	_ = s.control(func(fd int) error {
		columns, rows, err := term.GetSize(fd)
		if err == nil && columns > 0 && rows > 0 {
			s.Columns, s.Rows = columns, rows
		}
		return err
	})
}

// control calls f with the terminal's descriptor; File.Fd would make reads
// block for good.
func (s *Screen) control(f func(fd int) error) error {
	conn, err := s.tty.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}

func (s *Screen) read() {
	defer close(s.Keys)
	for key := make([]byte, 1); ; {
		if n, err := s.tty.Read(key); n == 0 || err != nil {
			return
		}
		select {
		case s.Keys <- key[0]:
		case <-s.done:
			return
		}
	}
}
