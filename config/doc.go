// Package config owns what an operator can decide: the options, their documentation,
// their defaults, and how a file is read, checked and written.
//
// It guarantees that a default is written once, that a key which is unknown or of the
// wrong kind is refused with its place in the file, and that what [Config.Write]
// prints loads as the same configuration. It never guesses: a file with one mistake is
// refused as a whole, and so is one that every user may write to.
//
// It opens nothing and keeps nothing: a Config is a value. Only [Load], [OtherWriters]
// and [Config.CheckMachine] look at the machine.
package config
