package main

import (
	"bytes"
	"errors"
	"io/fs"
	"os"

	"github.com/pelletier/go-toml/v2"
)

// defaultConfigPath is read when it is there and no other file is named.
const defaultConfigPath = "/etc/ipamd/ipamd.toml"

// loadConfig reads a file over the defaults; "" is the defaults. What is
// wrong comes back as [problems], each with its place in the file.
func loadConfig(path string) (Config, error) {
	if path == "" {
		c := defaults()
		return c, c.check()
	}
	doc, err := os.ReadFile(path)
	if err != nil {
		var of *fs.PathError
		if errors.As(err, &of) {
			err = of.Err
		}
		return Config{}, problems{{file: path, reason: "cannot be read: " + err.Error()}}
	}
	return parseConfig(path, doc)
}

// parseConfig is loadConfig of what the file holds.
func parseConfig(path string, doc []byte) (Config, error) {
	c, o := defaults(), outlineOf(doc)
	ps := c.decode(doc, o)
	if len(ps) == 0 {
		errors.As(c.check(), &ps)
	}
	if len(ps) > 0 {
		ps.place(path, o)
		return Config{}, ps
	}
	return c, nil
}

// decode reads a document into c. Syntax first: after an error in it the
// outline ends.
func (c *Config) decode(doc []byte, o outline) problems {
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

// decodeProblems says what the decoder refused. Its own prefix and drawings
// are for another place than one line.
func decodeProblems(err error) problems {
	var unknown *toml.StrictMissingError
	if errors.As(err, &unknown) {
		var ps problems
		for _, e := range unknown.Errors {
			ps = append(ps, decodeProblem(&e))
		}
		return ps
	}
	var at *toml.DecodeError
	if errors.As(err, &at) {
		return problems{decodeProblem(at)}
	}
	return problems{{reason: err.Error()}}
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
