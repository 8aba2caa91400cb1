//! Log item kinds, their codes and names, and the error for a malformed item.

macro_rules! kinds {
    ($($name:ident = $code:literal $text:literal),* $(,)?) => {
        /// Kinds of item.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u16)]
        #[expect(missing_docs, reason = "the names are the format's own")]
        pub enum ItemKind { $($name = $code),* }

        impl ItemKind {
            /// Decodes the first 16 bits of an item.
            pub const fn from_code(code: u16) -> Option<Self> {
                match code { $($code => Some(Self::$name),)* _ => None }
            }

            /// The name that the XFS tools print.
            pub const fn name(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

kinds! {
    Efi = 0x1236 "EFI", Efd = 0x1237 "EFD", Inode = 0x123b "INODE", Buf = 0x123c "BUF",
    Dquot = 0x123d "DQUOT", QuotaOff = 0x123e "QUOTAOFF", Icreate = 0x123f "ICREATE",
    Rui = 0x1240 "RUI", Rud = 0x1241 "RUD", Cui = 0x1242 "CUI", Cud = 0x1243 "CUD",
    Bui = 0x1244 "BUI", Bud = 0x1245 "BUD", Attri = 0x1246 "ATTRI", Attrd = 0x1247 "ATTRD",
    Xmi = 0x1248 "XMI", Xmd = 0x1249 "XMD", EfiRt = 0x124a "EFI_RT", EfdRt = 0x124b "EFD_RT",
    RuiRt = 0x124c "RUI_RT", RudRt = 0x124d "RUD_RT", CuiRt = 0x124e "CUI_RT",
    CudRt = 0x124f "CUD_RT",
}

/// A log item that violates the rules of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} item: {problem}")]
pub struct BadItem {
    /// Kind of the item, `unknown` if the code is not known.
    pub kind: &'static str,
    /// The problem.
    pub problem: String,
}

impl BadItem {
    /// Reports a malformed item of a known kind.
    pub fn new(kind: ItemKind, problem: impl Into<String>) -> Self {
        Self { kind: kind.name(), problem: problem.into() }
    }
}

/// Encodes the first word of an item: kind and number of regions.
pub(super) fn first_word(kind: ItemKind, regions: usize) -> [u8; 4] {
    let ([a, b], [c, d]) = ((kind as u16).to_le_bytes(), (regions as u16).to_le_bytes());
    [a, b, c, d]
}
