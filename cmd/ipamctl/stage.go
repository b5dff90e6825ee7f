package main

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
	ctrlC = 0x03
	ctrlZ = 0x1a
)

// What xterm and all that follow it understand (XTerm Control Sequences).
const (
	alternateScreen = "\x1b[?1049h\x1b[?25l" // and no cursor
	ownScreen       = "\x1b[?25h\x1b[?1049l"
	topLeft         = "\x1b[H"
	endOfLine       = "\x1b[K"
	endOfScreen     = "\x1b[0m\x1b[J"
)

// A stage is the controlling terminal while top has it: raw, on its alternate
// screen, read by a goroutine of its own. close gives it back as it was and
// waits for that goroutine; so must every way out.
type stage struct {
	tty           *os.File
	was           *term.State // before the first enter
	keys          chan byte   // closed when the terminal is gone
	done          chan struct{}
	columns, rows int
	start         sync.Once // of the reader
	reader        sync.WaitGroup
}

// openStage opens the controlling terminal and leaves it as it is. What is
// opened here is a file of its own, so that a deadline ends a read of it and
// the shell's standard input keeps its mode.
func openStage() (*stage, error) {
	tty, err := os.OpenFile("/dev/tty", os.O_RDWR, 0)
	if err != nil {
		return nil, fmt.Errorf("there is no controlling terminal: %w", err)
	}
	s := &stage{tty: tty, keys: make(chan byte), done: make(chan struct{})}
	s.measure()
	return s, nil
}

// enter takes the terminal; again is fine.
func (s *stage) enter() error {
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
	_, err = s.tty.WriteString(alternateScreen)
	return err
}

// leave gives the terminal back for now.
func (s *stage) leave() error {
	if s.was == nil {
		return nil
	}
	_, err := s.tty.WriteString(ownScreen)
	return errors.Join(err, s.control(func(fd int) error { return term.Restore(fd, s.was) }))
}

// close gives the terminal back for good. One that is gone cannot be given.
func (s *stage) close() {
	_ = s.leave()
	close(s.done)
	_ = s.tty.Close() // ends the reader
	s.reader.Wait()
}

// suspend gives the terminal back and stops the process as Ctrl-Z does, until
// continued says that it goes on. The kernel stops a process a moment after
// the call that asks for it; who took the terminal in that moment would leave
// a raw one to the shell. Process 1 of a container cannot be stopped.
func (s *stage) suspend(continued func()) error {
	if syscall.Getpid() == 1 {
		return nil
	}
	if err := s.leave(); err != nil {
		return err
	}
	if err := syscall.Kill(syscall.Getpid(), syscall.SIGSTOP); err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	continued()
	s.measure()
	return s.enter()
}

// draw writes a screen at once, each line cut to the terminal's width, so that
// nothing flickers and nothing wraps.
func (s *stage) draw(lines []string) error {
	var b bytes.Buffer
	b.WriteString(topLeft)
	for i, line := range lines {
		if i > 0 {
			b.WriteString("\r\n")
		}
		b.WriteString(text.Trim(line, s.columns))
		b.WriteString(endOfLine)
	}
	b.WriteString(endOfScreen)
	_, err := s.tty.Write(b.Bytes())
	return err
}

// measure reads how big the terminal is; one that does not say is 80 by 24.
func (s *stage) measure() {
	s.columns, s.rows = 80, 24
	_ = s.control(func(fd int) error {
		columns, rows, err := term.GetSize(fd)
		if err == nil && columns > 0 && rows > 0 {
			s.columns, s.rows = columns, rows
		}
		return err
	})
}

// control calls f with the terminal's descriptor; File.Fd would make reads
// block for good.
func (s *stage) control(f func(fd int) error) error {
	conn, err := s.tty.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = conn.Control(func(fd uintptr) { failed = f(int(fd)) })
	return errors.Join(err, failed)
}

func (s *stage) read() {
	defer close(s.keys)
	for key := make([]byte, 1); ; {
		if n, err := s.tty.Read(key); n == 0 || err != nil {
			return
		}
		select {
		case s.keys <- key[0]:
		case <-s.done:
			return
		}
	}
}
