package chat

import (
	"fmt"
	"strings"
	"time"
)

// builtins holds the functions that templates can call.
var builtins = map[string]any{
	"range":           &function{"range", makeRange},
	"dict":            &function{"dict", makeDict},
	"namespace":       &function{"namespace", makeNamespace},
	"raise_exception": &function{"raise_exception", raiseException},
	"strftime_now":    &function{"strftime_now", strftimeNow},
}

// maxRange is the limit of Jinja's sandbox.
const maxRange = 100_000

func makeRange(in *interpreter, args *arguments) (any, error) {
	bounds := [3]int64{0, 0, 1}
	if len(args.pos) == 0 || len(args.pos) > 3 || len(args.named) > 0 {
		return nil, typeError("range takes 1 to 3 arguments")
	}
	for i, arg := range args.pos {
		var ok bool
		if bounds[i], ok = integer(arg); !ok {
			return nil, typeError("range of a %s", typeName(arg))
		}
	}
	if len(args.pos) == 1 {
		bounds[0], bounds[1] = 0, bounds[0]
	}
	p := progression{start: bounds[0], stop: bounds[1], step: bounds[2]}
	switch {
	case p.step == 0:
		return nil, typeError("range with step 0")
	case p.step > 0 && p.start < p.stop:
		p.n = int64((uint64(p.stop)-uint64(p.start)-1)/uint64(p.step) + 1)
	case p.step < 0 && p.start > p.stop:
		p.n = int64((uint64(p.start)-uint64(p.stop)-1)/magnitude(p.step) + 1)
	}
	if p.n > maxRange || p.n < 0 {
		return nil, limitError("range of more than %d", maxRange)
	}
	return p, nil
}

func makeDict(in *interpreter, args *arguments) (any, error) {
	d := newDict()
	if len(args.pos) > 1 {
		return nil, typeError("dict takes at most 1 argument")
	}
	if len(args.pos) == 1 {
		if src, ok := args.pos[0].(*dict); ok {
			if err := in.spend(int64(len(src.keys)), entryBytes); err != nil {
				return nil, err
			}
			d = src.clone()
		} else {
			list, err := in.items(args.pos[0])
			if err != nil {
				return nil, err
			}
			for _, item := range list {
				pair, err := in.items(item)
				if err != nil {
					return nil, err
				}
				if len(pair) != 2 {
					return nil, typeError("dict of items with %d parts, expected 2", len(pair))
				}
				if err := in.spend(1, entryBytes); err != nil {
					return nil, err
				}
				if err := d.set(in.meter, pair[0], pair[1]); err != nil {
					return nil, err
				}
			}
		}
	}
	if err := in.spend(int64(len(args.named)), entryBytes); err != nil {
		return nil, err
	}
	for _, n := range args.named {
		d.setString(n.name, n.value)
	}
	return d, nil
}

func makeNamespace(in *interpreter, args *arguments) (any, error) {
	d, err := makeDict(in, args)
	if err != nil {
		return nil, err
	}
	for _, key := range d.(*dict).keys {
		if name, ok := key.(string); ok && strings.HasPrefix(name, "_") {
			return nil, typeError("a namespace cannot have the attribute %q", name)
		}
	}
	return &namespace{d.(*dict)}, nil
}

func raiseException(in *interpreter, args *arguments) (any, error) {
	v, err := args.bind("raise_exception", "message")
	if err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%w: %s", ErrRefused, in.text(v[0]))
}

func strftimeNow(in *interpreter, args *arguments) (any, error) {
	v, err := args.bind("strftime_now", "format")
	if err != nil {
		return nil, err
	}
	format, err := strOr(v[0], "")
	if err != nil {
		return nil, err
	}
	if err := in.spend(int64(len(format)), 16); err != nil { // size of %c, the longest result
		return nil, err
	}
	return strftime(in.now, format)
}

// strftime formats a time like C's function in the C locale.
func strftime(now time.Time, format string) (string, error) {
	layouts := map[byte]string{
		'a': "Mon", 'A': "Monday", 'd': "02", 'b': "Jan", 'B': "January", 'h': "Jan", 'm': "01", 'y': "06", 'Y': "2006",
		'H': "15", 'I': "03", 'p': "PM", 'M': "04", 'S': "05", 'f': ".000000", 'j': "002", 'e': "_2",
		'c': "Mon Jan _2 15:04:05 2006", 'x': "01/02/06", 'X': "15:04:05", 'D': "01/02/06", 'F': "2006-01-02", 'T': "15:04:05", 'R': "15:04",
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' || i+1 == len(format) {
			b.WriteByte(format[i])
			continue
		}
		i++
		unpadded := format[i] == '-' && i+1 < len(format)
		if unpadded {
			i++
		}
		part := ""
		switch c := format[i]; c {
		case '%':
			part = "%"
		case 'n':
			part = "\n"
		case 't':
			part = "\t"
		case 'w':
			part = fmt.Sprint(int(now.Weekday()))
		case 'u':
			part = fmt.Sprint((int(now.Weekday())+6)%7 + 1)
		case 's':
			part = fmt.Sprint(now.Unix())
		case 'z', 'Z': // the library's times have no zone
		default:
			layout, ok := layouts[c]
			if !ok {
				return "", typeError("strftime_now: unknown %%%c", c)
			}
			part = strings.TrimPrefix(now.Format(layout), ".")
		}
		if unpadded {
			if part = strings.TrimLeft(part, "0 "); part == "" {
				part = "0"
			}
		}
		b.WriteString(part)
	}
	return b.String(), nil
}
