package config

import (
	"fmt"
	"reflect"
	"strings"
)

// Differences names the options that the two do not share, as a file spells them.
func (c Config) Differences(other Config) []string {
	return differences("", reflect.ValueOf(c), reflect.ValueOf(other))
}

// differences is Differences of two values of one struct, which key names.
func differences(key string, was, is reflect.Value) []string {
	if was.Kind() != reflect.Struct || was.Type() == reflect.TypeFor[Duration]() {
		if reflect.DeepEqual(was.Interface(), is.Interface()) || was.Kind() == reflect.Slice && was.Len()+is.Len() == 0 {
			return nil
		}
		return []string{strings.TrimPrefix(key, ".")}
	}
	var out []string
	for i := range was.NumField() {
		name, _, _ := strings.Cut(was.Type().Field(i).Tag.Get("toml"), ",")
		out = append(out, differences(fmt.Sprint(key, ".", name), was.Field(i), is.Field(i))...)
	}
	return out
}
