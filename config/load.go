package config

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"time"

	"github.com/pelletier/go-toml/v2"
	"golang.org/x/sys/unix"
)

// DefaultPath is read when it is there and no other file is named.
const DefaultPath = "/etc/ipamd/ipamd.toml"

// Find returns the file to read where none is named: [DefaultPath], or "" where it is not
// there. One that cannot be read is not passed over.
func Find() string {
	if _, err := os.Stat(DefaultPath); errors.Is(err, fs.ErrNotExist) {
		return ""
	}
	return DefaultPath
}

// Load reads a file over the defaults; "" is the defaults. What is
// wrong comes back as [Problems], each with its place in the file.
func Load(ctx context.Context, path string) (Config, error) {
	if path == "" {
		c := Default()
		return c, c.Check()
	}
	doc, err := readWithin(ctx, path)
	if err != nil {
		var of *fs.PathError
		if errors.As(err, &of) {
			err = of.Err
		}
		if errors.Is(err, errExposed) {
			return Config{}, Problems{{file: path, reason: err.Error()}}
		}
		return Config{}, Problems{{file: path, reason: "cannot be read: " + err.Error()}}
	}
	return parse(path, doc)
}

const (
	// readTime is how long a file may take to be read: a file system that hangs
	// must not hang the daemon, or its end.
	readTime = 10 * time.Second
	// maxFile is more than any configuration has, in bytes.
	maxFile = 1 << 20
)

// readWithin reads a regular file, or says why it cannot. A file system that does
// not answer keeps a goroutine until it does, and nothing else.
func readWithin(ctx context.Context, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, readTime, fmt.Errorf("no answer within %v", readTime))
	defer cancel()
	type answer struct {
		doc []byte
		err error
	}
	read := make(chan answer, 1)
	go func() {
		doc, err := readRegular(path)
		read <- answer{doc, err}
	}()
	select {
	case a := <-read:
		return a.doc, a.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// readRegular reads a file that is neither a pipe nor a device: opening one that
// no process writes to would wait for ever.
func readRegular(path string) ([]byte, error) {
	if is, err := os.Stat(path); err == nil && is.Mode()&fs.ModeDevice != 0 {
		return nil, errors.New("it is no regular file") // to open a device may do something
	}
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	is, err := f.Stat()
	switch {
	case err != nil:
		return nil, err
	case is.IsDir():
		return nil, unix.EISDIR
	case !is.Mode().IsRegular():
		return nil, errors.New("it is no regular file")
	case is.Size() > maxFile:
		return nil, fmt.Errorf("it has %d bytes, more than %d", is.Size(), maxFile)
	}
	if err := notEverybodys(path, is); err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

// parse is Load of what the file holds.
func parse(path string, doc []byte) (Config, error) {
	c, o := Default(), outlineOf(doc)
	ps := c.decode(doc, o)
	if len(ps) == 0 {
		errors.As(c.Check(), &ps)
	}
	if len(ps) > 0 {
		ps.place(path, o)
		return Config{}, ps
	}
	return c, nil
}

// decode reads a document into c. Syntax first: after an error in it the
// outline ends.
func (c *Config) decode(doc []byte, o outline) Problems {
	var anything map[string]any
	if err := toml.Unmarshal(doc, &anything); err != nil {
		return decodeProblems(err)
	}
	if ps := o.problems(); len(ps) > 0 {
		return ps
	}
	pools := c.Pools
	c.Pools = nil
	if err := toml.NewDecoder(bytes.NewReader(doc)).DisallowUnknownFields().Decode(c); err != nil {
		return decodeProblems(err)
	}
	if c.Pools == nil {
		c.Pools = pools
	}
	return nil
}

// decodeProblems returns what the decoder refused, without its prefix and drawings,
// which are for more than one line.
func decodeProblems(err error) Problems {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		var ps Problems
		for _, e := range unknown.Errors {
			ps = append(ps, decodeProblem(&e))
		}
		return ps
	}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		return Problems{decodeProblem(at)}
	}
	return Problems{{reason: err.Error()}}
}

func decodeProblem(e *toml.DecodeError) problem {
	p := problem{reason: string(bytes.TrimPrefix([]byte(e.Error()), []byte("toml: ")))}
	p.line, p.column = e.Position()
	for i, part := range e.Key() {
		if i > 0 {
			p.key += "."
		}
		p.key += part
	}
	return p
}
