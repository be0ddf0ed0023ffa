package diffusion

import (
	"fmt"
	"strings"
)

// Truncation describes the part of a prompt that a text encoder did not read.
type Truncation struct {
	Encoder   string `json:"encoder"`    // part of the pipeline, such as text_encoder_2
	Tokens    int    `json:"tokens"`     // of the prompt, including the template
	MaxTokens int    `json:"max_tokens"` // limit of the encoder
	Text      string `json:"text"`       // the truncated part
}

// String returns a sentence without a subject, for notes. It shortens a long text.
func (t Truncation) String() string {
	const most = 200
	text := []rune(t.Text)
	if len(text) > most {
		text = append(text[:most], '…')
	}
	return fmt.Sprintf("truncated from %d to %d tokens for %s; cut off: %q", t.Tokens, t.MaxTokens, t.Encoder, string(text))
}

// Truncations returns the truncated parts of the last prompt, in the order of the encoders.
// It is empty if the prompt fits.
func (e *Encoder) Truncations() (all []Truncation) {
	for _, t := range []*textModel{e.main, e.second} {
		if t != nil && t.truncated != nil {
			all = append(all, *t.truncated)
		}
	}
	return all
}

// forgetTruncations clears the truncations before a new prompt.
func (e *Encoder) forgetTruncations() {
	for _, t := range []*textModel{e.main, e.second} {
		if t != nil {
			t.truncated = nil
		}
	}
}

// recordTruncation records that the end of full, which is text in its template, was not read.
// If the text was truncated before, it prepends to the recorded part.
func (t *textModel) recordTruncation(full, text, end string, tokens int) {
	end = strings.ReplaceAll(end, "</w>", " ") // CLIP's mark of the end of a word
	if before := t.truncated; before != nil {
		before.Text = end + before.Text
		return
	}
	template := full
	if i := strings.LastIndex(full, text); i >= 0 {
		template = full[i+len(text):]
	}
	if cut := strings.TrimSuffix(end, template); cut != "" {
		end = cut
	}
	t.truncated = &Truncation{Encoder: t.encoder, Tokens: tokens, MaxTokens: t.longest, Text: end}
}
