package events

import "fmt"

// Text is a generated text of a step.
type Text struct {
	Step int64
	Tag  string // name in TensorBoard, shared by all steps
	Text string // Markdown
}

// The fields of a text of TensorBoard: a tensor of one string, which the plugin "text" shows
// (tensorboard/compat/proto/{summary,tensor,types}.proto).
const (
	valueTensor   = 8<<3 | wireBytes
	valueMetadata = 9<<3 | wireBytes

	metadataPlugin = 1<<3 | wireBytes
	pluginName     = 1<<3 | wireBytes

	tensorDType  = 1<<3 | wireVarint
	tensorShape  = 2<<3 | wireBytes
	tensorString = 8<<3 | wireBytes
	shapeDim     = 2<<3 | wireBytes
	dimSize      = 1<<3 | wireVarint

	dtypeString = 7 // DT_STRING
)

// WriteText appends a text. Errors: ErrRecord for one that is too large.
func (tb *TensorBoard) WriteText(x Text) error {
	if len(x.Text) > largestFrame/2 {
		return fmt.Errorf("%w: the text %q of step %d has %d bytes, expected %d at most", ErrRecord, x.Tag, x.Step, len(x.Text), largestFrame/2)
	}
	return tb.append(textEvent(tb.seconds(), x))
}

func textEvent(wallTime float64, x Text) []byte {
	tensor := []byte{tensorDType, dtypeString}
	tensor = appendBytes(tensor, tensorShape, appendBytes(nil, shapeDim, []byte{dimSize, 1}))
	tensor = appendBytes(tensor, tensorString, []byte(x.Text))
	value := appendBytes(nil, valueTag, []byte(x.Tag))
	value = appendBytes(value, valueTensor, tensor)
	value = appendBytes(value, valueMetadata, appendBytes(nil, metadataPlugin, appendBytes(nil, pluginName, []byte("text"))))
	return appendBytes(appendEvent(nil, wallTime, x.Step), eventSummary, appendBytes(nil, summaryValue, value))
}
