package data

import (
	"slices"

	"github.com/lorafuse/lorafuse/internal/suggest"
)

// Formats returns the names of all formats.
func Formats() []string {
	names := []string{string(FormatAuto)}
	for _, f := range rowFormats {
		names = append(names, string(f.name))
	}
	return append(names, string(FormatText), string(FormatTokens))
}

// TrainOns returns the names of all TrainOn values.
func TrainOns() []string { return []string{string(TrainOnAnswer), string(TrainOnAll)} }

// TooLongs returns the names of all TooLong values.
func TooLongs() []string { return []string{string(Truncate), string(Drop), string(RefuseLong)} }

// RowKinds returns the names of all kinds of rows.
func RowKinds() []string {
	return []string{string(LanguageRows), string(PairRows), string(LabelledRows), string(PreferenceRows)}
}

// Problems returns the names of all problems.
func Problems() []string {
	return []string{string(SingleLabel), string(MultiLabel), string(Regression)}
}

// UnmarshalText parses the name of a format. It fails with ErrOption.
func (f *Format) UnmarshalText(text []byte) error { return choose(f, text, "format", Formats()) }

// UnmarshalText parses the name of a choice. It fails with ErrOption.
func (t *TrainOn) UnmarshalText(text []byte) error { return choose(t, text, "train_on", TrainOns()) }

// UnmarshalText parses the name of a choice. It fails with ErrOption.
func (t *TooLong) UnmarshalText(text []byte) error {
	return choose(t, text, "on_too_long", TooLongs())
}

// UnmarshalText parses the name of a kind. It fails with ErrOption.
func (r *Rows) UnmarshalText(text []byte) error { return choose(r, text, "rows", RowKinds()) }

// UnmarshalText parses the name of a problem. It fails with ErrOption.
func (p *Problem) UnmarshalText(text []byte) error { return choose(p, text, "problem", Problems()) }

// choose sets to to one of the valid names.
func choose[T ~string](to *T, name []byte, key string, valid []string) error {
	if err := oneOf(key, string(name), valid); err != nil {
		return err
	}
	*to = T(name)
	return nil
}

func oneOf(key, found string, valid []string) error {
	if slices.Contains(valid, found) {
		return nil
	}
	return &Error{Problem: key + ": " + suggest.Expected(found, valid), Kind: ErrOption}
}
