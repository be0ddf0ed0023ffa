package constrain

import (
	"maps"
	"slices"
	"sync"

	"github.com/lorafuse/lorafuse/internal/generate/constrain/internal/automaton"
)

// formats are the formats that a regular expression can express exactly. E-mail addresses are restricted to unquoted
// local parts within the lengths of RFC 5321.
var formats = func() map[string]string {
	const (
		// RFC 3339, with the correct number of days per month.
		months = `(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\d|30)|02-(?:0[1-9]|1\d|2[0-8]))`
		leap   = `(?:\d\d(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29`
		date   = `(?:\d{4}-` + months + `|` + leap + `)`
		time   = `(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d(?:\.\d{1,9})?(?:Z|[+-](?:[01]\d|2[0-3]):[0-5]\d)`
		byte   = `(?:25[0-5]|2[0-4]\d|1\d\d|[1-9]?\d)`
		label  = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
		atom   = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]"
	)
	return map[string]string{
		"date":      `^` + date + `$`,
		"time":      `^` + time + `$`,
		"date-time": `^` + date + `T` + time + `$`,
		"uuid":      `^[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$`,
		"ipv4":      `^` + byte + `(?:\.` + byte + `){3}$`,
		"email":     `^` + atom + `(?:\.?` + atom + `){0,31}@` + label + `(?:\.` + label + `){1,2}$`,
	}
}()

var formatNames = slices.Sorted(maps.Keys(formats))

// formatLexemes are the lexemes of strings that have a format and nothing else to
// follow, by the regular expression. All grammars share them.
var formatLexemes = func() map[string]func() (*automaton.DFA, error) {
	made := map[string]func() (*automaton.DFA, error){}
	for _, text := range formats {
		made[text] = sync.OnceValues(func() (*automaton.DFA, error) {
			b := automaton.NewBudget(maxStates)
			chars, err := automaton.Pattern(b, text)
			if err != nil {
				return nil, err
			}
			return automaton.Quoted(b, chars)
		})
	}
	return made
}()
