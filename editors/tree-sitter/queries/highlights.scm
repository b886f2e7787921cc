(comment) @comment
(string) @string
(number) @number
(size) @type
(constant) @constant.builtin
(value) @variable
(symbol) @function
(label) @label
(attribute_name) @attribute
(type_name) @type
(type (word) @type.builtin)
(entry key: (_) @property)
(operation name: (_) @function.builtin)
(operand_group (word) @keyword)
["module" "attributes" "private" "public" "nested" "loc"] @keyword
["->" "=" ":" "::"] @operator
