// Offsets: the server counts characters (code points), a JavaScript string UTF-16 units.

/** The UTF-16 offset of the character number `characters` in `text`. */
export function utf16Offset(text, characters) {
  let offset = 0;
  for (let n = 0; n < characters && offset < text.length; n += 1) {
    offset += text.codePointAt(offset) > 0xffff ? 2 : 1;
  }
  return offset;
}
