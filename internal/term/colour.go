package term

// Paint colours text when it is true and leaves it alone when not. Colour
// only repeats what the words and letters say already.
type Paint bool

// SGR colours a text by a Select Graphic Rendition code, such as "1;31".
func (p Paint) SGR(code, text string) string {
	if !p || code == "" || text == "" {
		return text
	}
	return "\x1b[" + code + "m" + text + "\x1b[0m"
}

func (p Paint) Bold(text string) string { return p.SGR("1", text) }
func (p Paint) Dim(text string) string  { return p.SGR("2", text) }
func (p Paint) Good(text string) string { return p.SGR("32", text) }
func (p Paint) Warn(text string) string { return p.SGR("33", text) }
func (p Paint) Bad(text string) string  { return p.SGR("1;31", text) }
